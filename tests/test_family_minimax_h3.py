"""MiniMax-H3's stages against diffusers' own whole pipeline, bit for bit, and the facts that the family states."""

import json
import shutil
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import MiniMaxH3Blocks, ModularPipeline
from diffusers.modular_pipelines.minimax_h3 import (
    MiniMaxH3AudioReference,
    MiniMaxH3ImageReference,
    MiniMaxH3VideoReference,
)
from PIL import Image

from videoinfer.engine import VideoEngine
from videoinfer.errors import MediaError, ModelError, RequestError
from videoinfer.families import STAGES, MiniMaxH3, family_for
from videoinfer.media import write_mp4
from videoinfer.request import GenerationRequest

PROMPT = "a small red circle moves right on the black background 日本"
STEPS, SEED = 2, 11


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, two clips (24 fps with sound, 30 fps without) and a sound; pictures and clips are of canvas size."""
    folder = tmp_path_factory.mktemp("media")
    rng = np.random.default_rng(0)
    for name in ("first", "last"):
        Image.fromarray(rng.integers(0, 255, (96, 160, 3), np.uint8)).save(folder / f"{name}.png")
    Image.fromarray(rng.integers(0, 255, (333, 500, 3), np.uint8)).save(folder / "large.png")
    frames = np.broadcast_to(rng.integers(0, 255, (30, 1, 1, 3), np.uint8), (30, 96, 160, 3))
    tone = 0.2 * np.sin(np.arange(80000, dtype=np.float32) / 20).reshape(2, 40000)
    write_mp4(folder / "sound.mp4", frames, 24, tone, 32000)
    write_mp4(folder / "fast.mp4", frames, 30)
    with wave.open(str(folder / "voice.wav"), "wb") as file:
        file.setparams((1, 2, 32000, 0, "NONE", ""))
        file.writeframes(rng.integers(-9999, 9999, 20000, np.int16).tobytes())
    return folder


def references(folder: Path, *names: str) -> list[dict[str, Any]]:
    kinds = {"first.png": "first_frame", "last.png": "last_frame", "voice.wav": "audio"}
    return [{"kind": kinds.get(name, "video"), "path": folder / name} for name in names]


def bare(folder: Path, workflow: str, decode: bool, **inputs: Any) -> Any:
    """The state of diffusers' whole pipeline after one run, without its decoders if they are not asked for."""
    blocks = MiniMaxH3Blocks().get_workflow(workflow)
    for name in [name for name in blocks.sub_blocks if name.startswith("decode") and not decode]:
        blocks.sub_blocks.pop(name)
    pipeline: Any = blocks.init_pipeline(str(folder))
    pipeline.load_components(dtype=torch.float32)
    if decode:
        inputs["output_type"] = "pil"
    return pipeline(
        prompt=PROMPT,
        width=160,
        height=96,
        num_frames=124,
        num_inference_steps=STEPS + 1,
        generator=torch.Generator().manual_seed(SEED),
        **inputs,
    )


def check_equal(engine: VideoEngine, wanted: Any, references: list[dict[str, Any]], decode: bool = False) -> None:
    request = GenerationRequest(prompt=PROMPT, steps=STEPS, seed=SEED, references=references)  # type: ignore[arg-type]
    resolved = engine.resolve(request)
    latents = engine.denoise(engine.encode(resolved), resolved)
    assert torch.equal(latents.video, wanted.latents)
    assert torch.equal(latents.audio, wanted.audio_latents)
    if decode:
        clip = engine.decode(latents)
        assert np.array_equal(clip.frames, np.stack([np.asarray(frame) for frame in wanted.videos[0]]))
        assert np.array_equal(clip.audio, wanted.audio[0].numpy())
        assert (clip.fps, clip.sample_rate) == (24.0, wanted.sampling_rate)


def test_t2va_equals_the_whole_pipeline(tiny_engine: VideoEngine, tiny_h3_folder: Path) -> None:
    check_equal(tiny_engine, bare(tiny_h3_folder, "t2va", True), [], decode=True)


@pytest.mark.parametrize("names", [("first.png",), ("last.png",), ("last.png", "first.png")])
def test_fl2va_equals_the_whole_pipeline(
    tiny_engine: VideoEngine, tiny_h3_folder: Path, media: Path, names: tuple[str, ...]
) -> None:
    inputs = {"first.png": "image", "last.png": "last_image"}
    pictures = {inputs[name]: Image.open(media / name) for name in names}
    check_equal(tiny_engine, bare(tiny_h3_folder, "fl2va", False, **pictures), references(media, *names))


def test_ref2va_with_pictures_clips_and_sounds_equals_the_whole_pipeline(
    tiny_h3_two_partitions: Path, media: Path
) -> None:
    given = [
        {"kind": "audio", "path": media / "voice.wav"},
        {"kind": "video", "path": media / "sound.mp4"},
        {"kind": "image", "path": media / "first.png"},
        {"kind": "video", "path": media / "fast.mp4"},
    ]
    wanted = bare(
        tiny_h3_two_partitions,
        "ref2va",
        True,
        references=[
            MiniMaxH3AudioReference.from_file(media / "voice.wav"),
            MiniMaxH3VideoReference.from_file(media / "sound.mp4"),
            MiniMaxH3ImageReference.from_file(media / "first.png"),
            MiniMaxH3VideoReference.from_file(media / "fast.mp4"),
        ],
    )
    with VideoEngine.from_pretrained(str(tiny_h3_two_partitions)) as engine:
        check_equal(engine, wanted, given, decode=True)


def test_ref2va_with_one_picture_equals_the_whole_pipeline(
    tiny_engine: VideoEngine, tiny_h3_folder: Path, media: Path
) -> None:
    picture = MiniMaxH3ImageReference.from_file(media / "first.png")
    wanted = bare(tiny_h3_folder, "ref2va", False, references=[picture])
    check_equal(tiny_engine, wanted, [{"kind": "image", "path": media / "first.png"}])


def test_the_folder_loads_as_a_whole_pipeline(tiny_h3_folder: Path) -> None:
    pipeline: Any = ModularPipeline.from_pretrained(str(tiny_h3_folder), workflow="fl2va")
    assert "transformer_ref" not in pipeline.component_names
    assert pipeline.config.canvas_short_edge == 96


def test_every_stage_expects_its_own_components_only() -> None:
    family = MiniMaxH3()
    models = {"text_encoder", "vae", "audio_vae", "transformer", "transformer_ref"}
    found = {
        (workflow, stage): models & set(family.stage_blocks(workflow, stage).component_names)
        for workflow in family.workflows
        for stage in STAGES
    }
    assert found["t2va", "encode"] == {"text_encoder"}
    assert found["fl2va", "encode"] == {"text_encoder", "vae"}
    assert found["ref2va", "encode"] == {"text_encoder", "vae", "audio_vae"}
    assert found["t2va", "denoise"] == found["fl2va", "denoise"] == {"transformer"}
    assert found["ref2va", "denoise"] == {"transformer_ref"}
    assert {frozenset(found[workflow, "decode"]) for workflow in family.workflows} == {frozenset({"vae", "audio_vae"})}


@pytest.mark.parametrize("fit", ["cover", "contain", "stretch"])
def test_keyframes_reach_the_blocks_at_canvas_size(tiny_engine: VideoEngine, media: Path, fit: str) -> None:
    reference = {"kind": "first_frame", "path": media / "large.png", "fit": fit}
    request = GenerationRequest(prompt=PROMPT, references=[reference], size=(160, 96))  # type: ignore[arg-type]
    resolved = tiny_engine.resolve(request)
    image = tiny_engine.model.family.encode_inputs(resolved, None)["image"]
    assert image.size == (160, 96)
    corner = np.asarray(image)[:, 0]
    assert (corner.max() == 0) == (fit == "contain")  # 500x333 is narrower than 160x96: black bars at the sides


def test_the_canvas_follows_the_first_keyframe(tiny_engine: VideoEngine, media: Path, tmp_path: Path) -> None:
    Image.new("RGB", (90, 160)).save(tmp_path / "upright.png")
    given = [*references(media, "last.png"), {"kind": "first_frame", "path": tmp_path / "upright.png"}]
    resolved = tiny_engine.resolve(GenerationRequest(prompt=PROMPT, references=given))  # type: ignore[arg-type]
    assert resolved.width < resolved.height


def test_reference_pictures_keep_their_own_ratio(tiny_engine: VideoEngine, media: Path) -> None:
    reference = {"kind": "image", "path": media / "large.png"}
    resolved = tiny_engine.resolve(GenerationRequest(prompt=PROMPT, references=[reference]))  # type: ignore[arg-type]
    pipeline = tiny_engine.model.stage("ref2va", "encode")
    (given,) = tiny_engine.model.family.encode_inputs(resolved, pipeline)["references"]
    assert given.image.size == (160, 96)  # 500x333 at a short edge of 96 is 144.1x96; 144.1 rounds to 5 * 32


@pytest.mark.parametrize(("size", "kind"), [((500, 100), "image"), ((100, 401), "image")])
def test_references_outside_the_ratio_are_refused(
    tiny_engine: VideoEngine, tmp_path: Path, size: tuple[int, int], kind: str
) -> None:
    Image.new("RGB", size).save(tmp_path / "long.png")
    reference = {"kind": kind, "path": tmp_path / "long.png"}
    resolved = tiny_engine.resolve(GenerationRequest(prompt=PROMPT, references=[reference]))  # type: ignore[arg-type]
    with pytest.raises(MediaError, match=r"long\.png is \d+x\d+; references must lie between 1:4 and 4:1"):
        tiny_engine.encode(resolved)


def test_a_reference_clip_that_is_too_short_is_refused(tiny_engine: VideoEngine, tmp_path: Path) -> None:
    write_mp4(tmp_path / "short.mp4", np.zeros((12, 96, 160, 3), np.uint8), 24)
    reference = {"kind": "video", "path": tmp_path / "short.mp4"}
    resolved = tiny_engine.resolve(GenerationRequest(prompt=PROMPT, references=[reference]))  # type: ignore[arg-type]
    with pytest.raises(MediaError, match=r"short\.mp4 lasts 0\.50 s; .* at least 0\.54 s"):
        tiny_engine.encode(resolved)


def test_n_forwards_run_and_a_collapsed_grid_is_refused(tiny_engine: VideoEngine) -> None:
    steps: list[int] = []
    resolved = tiny_engine.resolve(GenerationRequest(prompt=PROMPT, steps=3))
    conditioning = tiny_engine.encode(resolved)
    tiny_engine.denoise(conditioning, resolved, on_step=lambda step, total, sigma: steps.append(total))
    assert steps == [3, 3, 3]
    # So steep that float32 cannot tell the first steps apart.
    steep = tiny_engine.resolve(GenerationRequest(prompt=PROMPT, steps=3, shift=1e7))
    with pytest.raises(RequestError, match="only 2 distinct steps"):
        tiny_engine.denoise(conditioning, steep)
    tiny_engine.denoise(conditioning, resolved)


def copied(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target / "model")
    return target / "model"


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_may_narrow_its_grid(tiny_h3_folder: Path, tmp_path: Path) -> None:
    folder = copied(tiny_h3_folder, tmp_path)
    narrow = {"name": "toy", "allowed_sizes": [[160, 96]], "allowed_frames": [124, 209], "default_size": [160, 96]}
    (folder / "videoinfer.json").write_text(json.dumps(narrow))
    grid = MiniMaxH3().grid(folder)
    assert (grid.allowed_sizes, grid.allowed_frames, grid.default_size) == (((160, 96),), (124, 209), (160, 96))
    with VideoEngine.from_pretrained(str(folder)) as engine, pytest.raises(RequestError, match="160x96 only"):
        engine.resolve(GenerationRequest(prompt=PROMPT, size=(96, 96)))
    edit(folder / "videoinfer.json", sizes=[])
    with pytest.raises(ModelError, match=r"unknown keys sizes\. Known: name, allowed_frames"):
        MiniMaxH3().grid(folder)


def test_the_released_geometry_is_checked(tiny_h3_folder: Path, tmp_path: Path) -> None:
    folder = copied(tiny_h3_folder, tmp_path)
    edit(folder / "vae" / "config.json", latent_channels=16)
    with pytest.raises(ModelError, match="latent_channels gives 16; MiniMax-H3 needs 24"):
        VideoEngine.from_pretrained(str(folder))


def test_the_grid_of_a_description_without_weights(tiny_h3_folder: Path, tmp_path: Path) -> None:
    """What a hub model is before its components are downloaded."""
    shutil.copy(tiny_h3_folder / "modular_model_index.json", tmp_path)
    assert MiniMaxH3().grid(tmp_path) == MiniMaxH3().grid(tiny_h3_folder)


def test_folders_that_are_no_model_are_named(tiny_h3_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"modular_model_index\.json and model_index\.json are both missing.*holiday"):
        family_for(tmp_path)
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    with pytest.raises(ModelError, match=r"FluxPipeline, which is not supported\. Supported: MiniMax-H3"):
        family_for(tmp_path)
    (tmp_path / "model_index.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        family_for(tmp_path)
    assert family_for(tiny_h3_folder).name == "MiniMax-H3"


@pytest.mark.parametrize("workflow", ["t2va", "ref2va"])
def test_the_longest_clip_of_the_release_is_made(tiny_engine: VideoEngine, media: Path, workflow: str) -> None:
    references = ({"kind": "image", "path": media / "large.png"},) if workflow == "ref2va" else ()
    request = GenerationRequest(prompt="a circle", references=references, duration=15.0, size="32x32", steps=1)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="17"):
        resolved = tiny_engine.resolve(request)
    latents = tiny_engine.denoise(tiny_engine.encode(resolved), resolved)
    assert resolved.num_frames == 362 and latents.video.shape[2] == 107
