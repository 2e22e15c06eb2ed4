"""Conditioning: what the encoders made of a prompt and its references. Can be stored, and used by another process."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from .errors import ModelError
from .request import ResolvedRequest

FORMAT = 1


@dataclass(frozen=True)
class Conditioning:
    """Everything that the denoise stage needs to know of a request beside its seed and its steps.

    prompt_embeds: (1, tokens, width) in the encoder's dtype; text_token_tags: (tokens,) int64, modality of each row.
    condition_latents: one (1, channels, frames, height, width) float32 tensor per keyframe or visual reference.
    audio_condition_latents: one (rows, channels) float32 tensor per reference that sounds.
    keyframe_anchors: "first" or "last" per keyframe. reference_kinds: (kind, has sound) per reference, in order.
    """

    key: str
    workflow: str
    width: int
    height: int
    num_frames: int
    prompt_embeds: torch.Tensor
    text_token_tags: torch.Tensor
    condition_latents: tuple[torch.Tensor, ...] = ()
    audio_condition_latents: tuple[torch.Tensor, ...] = ()
    keyframe_anchors: tuple[str, ...] = ()
    reference_kinds: tuple[tuple[str, bool], ...] = ()

    def save(self, path: str | Path) -> Path:
        """Write `path` (.safetensors) and the same name with .json; an older pair of that name is replaced."""
        path = Path(path).with_suffix(".safetensors")
        tensors = {"prompt_embeds": self.prompt_embeds, "text_token_tags": self.text_token_tags}
        for name in ("condition_latents", "audio_condition_latents"):
            tensors |= {f"{name}.{i}": tensor for i, tensor in enumerate(getattr(self, name))}
        meta = {
            "format": FORMAT,
            "key": self.key,
            "workflow": self.workflow,
            "width": self.width,
            "height": self.height,
            "num_frames": self.num_frames,
            "keyframe_anchors": self.keyframe_anchors,
            "reference_kinds": self.reference_kinds,
            "condition_latents": len(self.condition_latents),
            "audio_condition_latents": len(self.audio_condition_latents),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(stored, part, metadata={"key": self.key})
        os.replace(part, path)
        # The JSON comes last: a pair whose JSON is missing or names another key is not complete.
        part = path.with_name(path.stem + ".json.part")
        part.write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        os.replace(part, path.with_suffix(".json"))
        return path

    @classmethod
    def load(cls, path: str | Path, key: str | None = None) -> "Conditioning":
        """Read a stored conditioning; with `key`, only one that belongs to that key.

        Raises ModelError: a file is missing or damaged, the two files do not belong together, or the key differs.
        """
        path = Path(path).with_suffix(".safetensors")
        try:
            meta = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            if meta["format"] != FORMAT:
                raise ModelError(f"{path} has format {meta['format']}; this version reads {FORMAT}: encode again.")
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("key") != meta["key"]:
                    raise ModelError(f"{path} and its .json do not belong together: encode again.")
                # Copied, because a mapped file leaves tensors at odd addresses, where a CPU adds up in another order
                # and the latents differ in their last bits.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            lists = [
                tuple(tensors[f"{name}.{i}"] for i in range(meta[name]))
                for name in ("condition_latents", "audio_condition_latents")
            ]
            loaded = cls(
                key=meta["key"],
                workflow=meta["workflow"],
                width=meta["width"],
                height=meta["height"],
                num_frames=meta["num_frames"],
                prompt_embeds=tensors["prompt_embeds"],
                text_token_tags=tensors["text_token_tags"],
                keyframe_anchors=tuple(meta["keyframe_anchors"]),
                reference_kinds=tuple((kind, sound) for kind, sound in meta["reference_kinds"]),
                condition_latents=lists[0],
                audio_condition_latents=lists[1],
            )
        except (OSError, KeyError, ValueError, TypeError, SafetensorError) as error:
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"{path} is no complete conditioning ({error!r}): encode again.") from error
        if key is not None and loaded.key != key:
            raise ModelError(f"{path} belongs to another request or model (key {loaded.key[:12]}, wanted {key[:12]}).")
        return loaded

    def check_matches(self, resolved: ResolvedRequest) -> None:
        """ModelError when this conditioning was made for another workflow, canvas or length than `resolved` asks."""
        mine: tuple[Any, ...] = (self.workflow, self.width, self.height, self.num_frames)
        asked = (resolved.workflow, resolved.width, resolved.height, resolved.num_frames)
        if mine != asked:
            raise ModelError(f"the conditioning was made for {mine}, the request asks for {asked}: encode again.")


def conditioning_key(
    resolved: ResolvedRequest, *, model: str, revision: str, dtype: torch.dtype, device_type: str
) -> str:
    """sha256 in hex over everything that the encoders' result depends on; seed and steps are not part of it.

    References count by the content of their files, in order, with their fit. The device type is part of it because a
    GPU and a CPU round differently.
    """
    request = resolved.request
    content = {
        "format": FORMAT,
        "model": model,
        "revision": revision,
        "dtype": str(dtype),
        "device": device_type,
        "workflow": resolved.workflow,
        "prompt": request.prompt_text,
        "references": [[r.kind, r.fit, r.digest()] for r in request.references],
        "canvas": [resolved.width, resolved.height],
        "num_frames": resolved.num_frames,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
