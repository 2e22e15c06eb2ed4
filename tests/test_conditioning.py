"""A stored conditioning gives the same latents as a fresh one, and its key changes with everything it depends on."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from videoinfer.conditioning import Conditioning, conditioning_key
from videoinfer.engine import VideoEngine
from videoinfer.errors import ModelError
from videoinfer.request import GenerationRequest, Reference

PROMPT = "a red circle"


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "picture.png"
    Image.new("RGB", (160, 96), (200, 30, 30)).save(path)
    return path


def request(path: Path | None = None, kind: str = "image", **changes) -> GenerationRequest:
    given = () if path is None else (Reference(kind=kind, path=path, fit=changes.pop("fit", "cover")),)  # type: ignore[arg-type]
    return GenerationRequest(**{"prompt": PROMPT, "steps": 1, "references": given} | changes)


@pytest.mark.parametrize("kind", [None, "first_frame", "image"])
def test_a_stored_conditioning_gives_equal_latents(
    tiny_engine: VideoEngine, picture: Path, tmp_path: Path, kind: str | None
) -> None:
    resolved = tiny_engine.resolve(request(picture, kind) if kind else request())
    fresh = tiny_engine.encode(resolved)
    path = fresh.save(tmp_path / "deep" / "stored")
    stored = Conditioning.load(path, tiny_engine.conditioning_key(resolved))
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["stored.json", "stored.safetensors"]
    assert stored.reference_kinds == ((("image", False),) if kind == "image" else ())
    one, other = (tiny_engine.denoise(conditioning, resolved) for conditioning in (fresh, stored))
    assert torch.equal(one.video, other.video)
    assert torch.equal(one.audio, other.audio)


def test_the_kinds_and_sounds_of_references_are_kept_in_order(tmp_path: Path) -> None:
    kinds = (("audio", True), ("video", False), ("video", True), ("image", False))
    tensors = (torch.arange(3.0), torch.arange(2.0), torch.arange(4.0))
    made = Conditioning(
        "k", "ref2va", 160, 96, 124, torch.ones(1, 2, 3, dtype=torch.bfloat16), torch.ones(2, dtype=torch.long),
        tensors[:2], tensors[2:], ("first", "last"), kinds,
    )  # fmt: skip
    loaded = Conditioning.load(made.save(tmp_path / "c.safetensors"))
    assert (loaded.reference_kinds, loaded.keyframe_anchors) == (kinds, ("first", "last"))
    assert loaded.prompt_embeds.dtype == torch.bfloat16
    assert [t.tolist() for t in loaded.condition_latents] == [[0.0, 1.0, 2.0], [0.0, 1.0]]
    assert [t.tolist() for t in loaded.audio_condition_latents] == [[0.0, 1.0, 2.0, 3.0]]


def test_the_key_depends_on_what_the_encoders_see(tiny_engine: VideoEngine, picture: Path, tmp_path: Path) -> None:
    same, other = tmp_path / "same.png", tmp_path / "other.png"
    same.write_bytes(picture.read_bytes())
    Image.new("RGB", (160, 96)).save(other)

    def key(made: GenerationRequest, dtype: torch.dtype = torch.float32, revision: str = "r") -> str:
        resolved = tiny_engine.resolve(made)
        return conditioning_key(resolved, model="m", revision=revision, dtype=dtype, device_type="cpu")

    base = key(request(picture))
    assert key(request(same)) == base  # content counts, not the name
    assert key(request(picture, seed=5, steps=9, id="x")) == base
    changed = [
        key(request(picture, prompt="a blue circle")),
        key(request(other)),
        key(request(picture, fit="contain")),
        key(request(picture, kind="first_frame")),
        key(request(picture, kind="last_frame")),
        key(request(picture, num_frames=141)),
        key(request(picture, size=(96, 160))),
        key(request(picture), dtype=torch.bfloat16),
        key(request(picture), revision="r2"),
        key(request()),
    ]
    assert len({base, *changed}) == len(changed) + 1


def test_a_conditioning_of_another_request_is_refused(tiny_engine: VideoEngine, tmp_path: Path) -> None:
    resolved = tiny_engine.resolve(request())
    made = tiny_engine.encode(resolved)
    with pytest.raises(ModelError, match="belongs to another request or model"):
        Conditioning.load(made.save(tmp_path / "c"), "0" * 64)
    longer = tiny_engine.resolve(request(num_frames=141))
    with pytest.raises(ModelError, match=r"made for .*124.*asks for .*141"):
        tiny_engine.denoise(made, longer)


def test_damaged_and_unpaired_files_are_refused(tiny_engine: VideoEngine, tmp_path: Path) -> None:
    made = tiny_engine.encode(tiny_engine.resolve(request()))
    path = made.save(tmp_path / "c")
    meta = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(meta | {"key": "f" * 64}))
    with pytest.raises(ModelError, match="do not belong together"):
        Conditioning.load(path)
    path.with_suffix(".json").write_text(json.dumps(meta))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelError, match="no complete conditioning"):
        Conditioning.load(path)
    with pytest.raises(ModelError, match="no complete conditioning"):
        Conditioning.load(tmp_path / "missing")
