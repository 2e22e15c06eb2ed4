"""Loading: a workflow reads its own components only, what does not fit makes room, and what is damaged is an error."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import videoinfer.model
from videoinfer.engine import VideoEngine
from videoinfer.errors import ModelError
from videoinfer.request import GenerationRequest


def request(folder: Path, **changes: Any) -> GenerationRequest:
    return GenerationRequest(**{"prompt": "a red circle", "steps": 2, "output": {"folder": folder}} | changes)


def loaded(engine: VideoEngine) -> set[str]:
    return {load_id.split("|")[1] for load_id in engine.model._components}


def test_stages_load_what_they_need_and_can_be_freed(tiny_h3_folder: Path, tmp_path: Path) -> None:
    with VideoEngine.from_pretrained(str(tiny_h3_folder)) as engine:
        assert loaded(engine) == set()
        resolved = engine.resolve(request(tmp_path, steps=1))
        conditioning = engine.encode(resolved)
        assert loaded(engine) == {"text_encoder", "tokenizer", "processor"}
        latents = engine.denoise(conditioning, resolved)
        engine.free("encode")
        assert loaded(engine) == {"transformer", "scheduler", "audio_scheduler"}
        engine.free("denoise")
        assert loaded(engine) == set()
        assert torch.equal(engine.denoise(engine.encode(resolved), resolved).video, latents.video)


def test_components_of_other_stages_make_room(
    tiny_h3_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with VideoEngine.from_pretrained(str(tiny_h3_folder)) as engine:
        resolved = engine.resolve(request(tmp_path, steps=1))
        conditioning = engine.encode(resolved)

        def crowded(estimate: dict[str, int], device: torch.device) -> None:
            if "text_encoder" in loaded(engine):
                raise ModelError("the weights need 61 GiB, and 40 GiB are free")

        monkeypatch.setattr(videoinfer.model, "check_fits", crowded)
        engine.denoise(conditioning, resolved)
        assert loaded(engine) == {"transformer", "scheduler", "audio_scheduler"}
        assert engine.model.swaps == 1


def test_a_model_that_cannot_fit_is_refused_before_it_is_read(
    tiny_h3_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("videoinfer.weights.free_memory", lambda device: 1000)
    with VideoEngine.from_pretrained(str(tiny_h3_folder)) as engine:
        with pytest.raises(ModelError, match=r"the weights need .*text_encoder .* and cpu has 0\.00 GiB free"):
            engine.encode(engine.resolve(request(tmp_path)))
        assert loaded(engine) == set()


def test_a_workflow_needs_its_own_partition_only(tiny_h3_two_partitions: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_h3_two_partitions, folder)
    (folder / "transformer_ref" / "diffusion_pytorch_model.safetensors").unlink()
    Image.new("RGB", (160, 96)).save(tmp_path / "a.png")
    with VideoEngine.from_pretrained(str(folder)) as engine:
        resolved = engine.resolve(request(tmp_path, steps=1))
        engine.denoise(engine.encode(resolved), resolved)
        refs = [{"kind": "image", "path": tmp_path / "a.png"}]
        with pytest.raises(ModelError, match=r"transformer_ref/ has a config\.json and no \*\.safetensors"):
            engine.encode(engine.resolve(request(tmp_path, references=refs)))


@pytest.mark.parametrize(
    ("component", "file"),
    [("transformer", "diffusion_pytorch_model.safetensors"), ("text_encoder", "model.safetensors")],
)
def test_weights_that_are_missing_from_a_file_are_an_error(
    tiny_h3_folder: Path, tmp_path: Path, component: str, file: str
) -> None:
    """diffusers and transformers would start them at random, and say so in a log."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_h3_folder, folder)
    weights = load_file(folder / component / file)
    gone = next(name for name in sorted(weights) if name.endswith("norm1.weight") or "q_proj" in name)
    del weights[gone]
    save_file(weights, folder / component / file, metadata={"format": "pt"})
    with (
        VideoEngine.from_pretrained(str(folder)) as engine,
        pytest.raises(ModelError, match="cannot be used as it is on disk") as caught,
    ):
        resolved = engine.resolve(request(tmp_path))
        engine.denoise(engine.encode(resolved), resolved)
    assert gone.split(".")[-2] in str(caught.value)


def test_a_component_that_does_not_load_is_an_error(tiny_h3_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_h3_folder, folder)
    (folder / "tokenizer" / "tokenizer.json").write_text("{}")
    with VideoEngine.from_pretrained(str(folder)) as engine, pytest.raises(ModelError, match="tokenizer of the model"):
        engine.encode(engine.resolve(request(tmp_path)))


def test_inputs_that_the_blocks_would_ignore_are_an_error(tiny_engine: VideoEngine) -> None:
    pipeline = tiny_engine.model.stage("t2va", "encode")
    with pytest.raises(ModelError, match="encode blocks of MiniMax-H3 take no guidance_scale, negative_prompt"):
        tiny_engine.model.run(pipeline, "encode", {"prompt": "a", "negative_prompt": "b", "guidance_scale": 3})


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99"])
def test_devices_that_do_not_exist_are_named(tiny_h3_folder: Path, device: str) -> None:
    with pytest.raises(ModelError, match=f"device '{device}'"):
        VideoEngine.from_pretrained(str(tiny_h3_folder), device=device)


def test_half_precision_runs_on_a_cpu(tiny_h3_folder: Path, tmp_path: Path) -> None:
    with VideoEngine.from_pretrained(str(tiny_h3_folder), device="cpu", dtype="bfloat16") as engine:
        resolved = engine.resolve(request(tmp_path, steps=1))
        conditioning = engine.encode(resolved)
        assert conditioning.prompt_embeds.dtype == torch.bfloat16
        transformer = engine.model.stage("t2va", "denoise").transformer
        assert transformer.proj_in.weight.dtype == torch.float32  # pinned by diffusers, as in the release
        assert transformer.transformer_blocks[0].attn.to_q.weight.dtype == torch.bfloat16
        assert engine.denoise(conditioning, resolved).video.dtype == torch.float32
