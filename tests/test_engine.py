"""The engine from a request to files, and everything that may go wrong on the way."""

import fcntl
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import videoinfer.model
from videoinfer.engine import VideoEngine
from videoinfer.errors import Cancelled, GenerationError, MediaError, ModelError, RequestError
from videoinfer.generation import digest
from videoinfer.latents_file import read_latents
from videoinfer.media import probe_mp4
from videoinfer.request import GenerationRequest, RequestAdjusted
from videoinfer.result import Latents

PROMPT = "a red circle moves right"


def request(folder: Path, **changes: Any) -> GenerationRequest:
    return GenerationRequest(**{"prompt": PROMPT, "steps": 2, "output": {"folder": folder}} | changes)


def loop_blocks(engine: VideoEngine) -> list[str]:
    pipeline = engine.model.stage("t2va", "denoise")
    return list(engine.model.family.denoise_loop(pipeline._blocks).sub_blocks)


@contextmanager
def changed(parameter: torch.nn.Parameter, value: float) -> Iterator[None]:
    before = parameter.data.clone()
    parameter.data.fill_(value)
    try:
        yield
    finally:
        parameter.data.copy_(before)


def test_generate_writes_the_clip_and_its_sidecar(tiny_engine: VideoEngine, tmp_path: Path) -> None:
    stages: list[str] = []
    steps: list[tuple[int, int]] = []
    sigmas: list[float] = []

    def on_step(step: int, total: int, sigma: float) -> None:
        steps.append((step, total))
        sigmas.append(sigma)

    asked = request(tmp_path / "new" / "folder", num_frames=123, id="clip", seed=5)
    with pytest.warns(RequestAdjusted, match="123"):
        result = tiny_engine.generate(asked, on_stage=stages.append, on_step=on_step)
    assert stages == ["encode", "denoise", "decode", "write"]
    assert steps == [(1, 2), (2, 2)]
    # H3's grid of three points, shifted by 12: 12 s / (1 + 11 s) at s = 1 and 1/2.
    assert sigmas == pytest.approx([1.0, 12 / 13])
    found = probe_mp4(result.path)
    assert (found["frames"], found["width"], found["height"], found["sample_rate"]) == (124, 160, 96, 32000)
    assert found["audio_duration"] == pytest.approx(124 / 24, abs=0.1)
    assert found["metadata"].keys() >= {"request", "actual", "model"}
    record = json.loads(result.sidecar_path.read_text())
    assert record["request"] == asked.model_dump(mode="json")
    assert record["actual"] == {
        "workflow": "t2va", "width": 160, "height": 96, "num_frames": 124, "fps": 24, "steps": 2, "seed": 5,
    }  # fmt: skip
    (adjustment,) = record["adjustments"]
    assert (adjustment["field"], adjustment["asked"], adjustment["actual"]) == ("num_frames", 123, 124)
    assert record["model"]["family"] == "MiniMax-H3"
    assert record["timings"].keys() == {"encode", "denoise", "decode", "write", "total"}
    assert record["peak_memory_mb"] > 0
    assert record["versions"].keys() >= {"torch", "diffusers", "transformers", "videoinfer"}
    assert (record["device"], record["dtype"]) == ("cpu", "float32")
    assert sorted(path.name for path in result.path.parent.iterdir()) == ["clip.json", "clip.mp4"]


@pytest.mark.slow
def test_frames_gif_and_latents_are_written_on_request(tiny_engine: VideoEngine, tmp_path: Path) -> None:
    output = {"folder": tmp_path, "frames": True, "gif": True, "latents": True}
    result = tiny_engine.generate(request(tmp_path, id="c", output=output, steps=1))
    assert [path.name for path in result.extras] == ["c_frames", "c.gif", "c.latents.safetensors"]
    assert len(list((tmp_path / "c_frames").iterdir())) == 124
    latents = read_latents(tmp_path / "c.latents.safetensors")
    assert {"video": digest(latents.video), "audio": digest(latents.audio)} == result.record["latents"]
    with Image.open(tmp_path / "c_frames" / "frame_00123.png") as picture:
        assert (tiny_engine.decode(latents).frames[123] == np.asarray(picture)).all()


def test_the_same_seed_in_two_processes_gives_equal_latents(
    tiny_engine: VideoEngine, tiny_h3_folder: Path, tmp_path: Path
) -> None:
    script = f"""
import torch
from safetensors.torch import save_file
from videoinfer.engine import VideoEngine
from videoinfer.request import GenerationRequest
torch.set_num_threads({torch.get_num_threads()})
engine = VideoEngine.from_pretrained({str(tiny_h3_folder)!r}, device="cpu")
resolved = engine.resolve(GenerationRequest(prompt={PROMPT!r}, steps=2, seed=2**63 - 1))
latents = engine.denoise(engine.encode(resolved), resolved)
save_file({{"video": latents.video, "audio": latents.audio}}, {str(tmp_path / "other.safetensors")!r})
"""
    root = Path(videoinfer.model.__file__).parents[1]
    subprocess.run([sys.executable, "-c", script], check=True, cwd=root)
    other = load_file(tmp_path / "other.safetensors")
    resolved = tiny_engine.resolve(request(tmp_path, seed=2**63 - 1))
    mine = tiny_engine.denoise(tiny_engine.encode(resolved), resolved)
    assert torch.equal(mine.video, other["video"])
    assert torch.equal(mine.audio, other["audio"])


@pytest.mark.parametrize("how", ["cancel", "interrupt", "error"])
def test_a_run_that_ends_early_leaves_no_file_and_no_trace(tiny_engine: VideoEngine, tmp_path: Path, how: str) -> None:
    blocks = loop_blocks(tiny_engine)
    resolved = tiny_engine.resolve(request(tmp_path))
    before = tiny_engine.denoise(tiny_engine.encode(resolved), resolved)
    cancel = threading.Event()
    seen: list[int] = []

    def on_step(step: int, total: int, sigma: float) -> None:
        seen.append(step)
        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "error":
            raise RuntimeError("the callback is broken")
        cancel.set()

    wanted = {"cancel": Cancelled, "interrupt": KeyboardInterrupt, "error": RuntimeError}[how]
    with pytest.raises(wanted):  # what the caller's own function raises comes out as it is
        tiny_engine.generate(request(tmp_path), on_step=on_step, cancel=cancel)
    assert seen == [1]  # the second step never ran
    assert list(tmp_path.iterdir()) == []
    assert loop_blocks(tiny_engine) == blocks
    after = tiny_engine.denoise(tiny_engine.encode(resolved), resolved)
    assert torch.equal(before.video, after.video)


@pytest.mark.parametrize("stage", ["encode", "denoise", "decode", "write"])
def test_cancel_and_interrupt_at_every_stage_leave_no_file(
    tiny_engine: VideoEngine, tmp_path: Path, stage: str
) -> None:
    cancel = threading.Event()

    def interrupt(name: str) -> None:
        if name == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny_engine.generate(request(tmp_path, steps=1), on_stage=interrupt)
    cancel.set()
    with pytest.raises(Cancelled):
        tiny_engine.generate(request(tmp_path, steps=1), cancel=cancel)
    assert list(tmp_path.iterdir()) == []


def test_nan_is_refused_before_decoding(tiny_engine: VideoEngine, tmp_path: Path) -> None:
    transformer = tiny_engine.model.stage("t2va", "denoise").transformer
    stages: list[str] = []
    bias = transformer.audio_proj_out.bias
    with changed(bias, float("nan")), pytest.raises(GenerationError, match="sound holds NaN"):
        tiny_engine.generate(request(tmp_path, steps=1), on_stage=stages.append)
    assert stages == ["encode", "denoise"]
    bad = Latents("t2va", torch.full((1, 24, 37, 6, 10), float("inf")), torch.zeros(2, 32, 207))
    with pytest.raises(GenerationError, match="video holds NaN or Inf"):
        tiny_engine.decode(bad)
    assert list(tmp_path.iterdir()) == []


def test_a_black_clip_is_refused(tiny_engine: VideoEngine, tmp_path: Path) -> None:
    vae = tiny_engine.model.stage("t2va", "decode").vae
    with changed(vae.decoder.proj_out.bias, -100.0), pytest.raises(GenerationError, match="all 124 frames are black"):
        tiny_engine.generate(request(tmp_path, steps=1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("existing", ["clip.mp4", "clip.json", "clip.gif"])
def test_existing_files_are_refused_before_any_work(tiny_engine: VideoEngine, tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("mine")
    stages: list[str] = []
    output = {"path": tmp_path / "clip.mp4", "gif": True}
    with pytest.raises(MediaError, match=f"{existing} already exists"):
        tiny_engine.generate(request(tmp_path, output=output), on_stage=stages.append)
    assert stages == []
    assert (tmp_path / existing).read_text() == "mine"


@pytest.mark.slow
def test_files_of_the_user_that_look_like_ours_are_not_touched(tiny_engine: VideoEngine, tmp_path: Path) -> None:
    """Browsers, too, call what they have not finished `.part`."""
    mine = [tmp_path / f"clip.{name}.part" for name in ("mp4", "json", "gif", "latents.safetensors")]
    mine.append(tmp_path / "clip_frames.part" / "a.png")
    mine[-1].parent.mkdir()
    for path in mine:
        path.write_text("mine")
    output = {"path": tmp_path / "clip.mp4", "gif": True, "frames": True, "latents": True}
    tiny_engine.generate(request(tmp_path, steps=1, output=output))
    assert [path.read_text() for path in mine] == ["mine"] * 5
    assert not list(tmp_path.glob("*.videoinfer.part"))


@pytest.mark.parametrize("how", ["published", "being written"])
def test_a_name_that_another_process_took_meanwhile_gives_way(
    tiny_engine: VideoEngine, tmp_path: Path, how: str
) -> None:
    one = request(tmp_path, steps=1, id="clip")
    part = (tmp_path / "clip.mp4.videoinfer.part").open("w") if how == "being written" else None

    def take(stage: str) -> None:
        if stage == "write":
            if part is None:
                (tmp_path / "clip.mp4").write_text("theirs")
            else:
                fcntl.flock(part, fcntl.LOCK_EX)

    result = tiny_engine.generate(one, on_stage=take)
    assert result.path == tmp_path / "clip-2.mp4"
    assert result.sidecar_path == tmp_path / "clip-2.json"
    assert probe_mp4(result.path)["frames"] == 124
    if part is None:
        assert (tmp_path / "clip.mp4").read_text() == "theirs"
    named = request(tmp_path, steps=1, output={"path": tmp_path / "clip.mp4"})
    with pytest.raises(MediaError, match=r"clip\.mp4"):  # a name that the user gave is kept
        tiny_engine.generate(named)
    if part is not None:
        part.close()


@pytest.mark.parametrize("change", [{"prompt": "a blue square"}, {"size": "128x128"}, {"num_frames": 141}])
def test_a_conditioning_of_another_request_is_refused(tiny_engine: VideoEngine, tmp_path: Path, change: Any) -> None:
    conditioning = tiny_engine.encode(tiny_engine.resolve(request(tmp_path)))
    with pytest.raises(ModelError, match="conditioning was made for"):
        tiny_engine.denoise(conditioning, tiny_engine.resolve(request(tmp_path, **change)))
    tiny_engine.denoise(conditioning, tiny_engine.resolve(request(tmp_path, steps=1, seed=3)))


def test_a_broken_reference_is_found_before_any_weights_are_read(tiny_h3_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    references = ({"kind": "image", "path": tmp_path / "a.png"},)
    with VideoEngine.from_pretrained(tiny_h3_folder) as engine:
        with pytest.raises(MediaError, match=r"a\.png"):
            engine.generate(request(tmp_path, references=references))
        assert engine.model._components == {}


def test_what_is_no_request_and_no_model_is_named(tiny_engine: VideoEngine) -> None:
    with pytest.raises(RequestError, match="dict is no request"):
        tiny_engine.generate({"prompt": "a"})  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="None is neither a name nor a folder"):
        VideoEngine.from_pretrained(None)  # type: ignore[arg-type]


def test_a_dtype_of_torch_is_taken(tiny_h3_folder: Path) -> None:
    with VideoEngine.from_pretrained(tiny_h3_folder, dtype=torch.bfloat16) as engine:
        assert engine.model.dtype is torch.bfloat16


def test_a_sidecar_that_cannot_be_written_leaves_the_clip(
    tiny_engine: VideoEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, record: dict[str, Any]) -> None:
        raise MediaError(f"cannot write {path}: the disk is full")

    monkeypatch.setattr("videoinfer.output_files.write_json", full)
    with pytest.raises(MediaError, match=r"clip\.mp4 is complete, but .*clip\.json: the disk is full"):
        tiny_engine.generate(request(tmp_path, id="clip", steps=1))
    assert probe_mp4(tmp_path / "clip.mp4")["frames"] == 124


def test_one_generation_at_a_time(tiny_engine: VideoEngine, tmp_path: Path) -> None:
    refused: list[str] = []

    def again(step: int, total: int, sigma: float) -> None:
        with pytest.raises(GenerationError) as caught:
            tiny_engine.generate(request(tmp_path))
        refused.append(str(caught.value))

    resolved = tiny_engine.resolve(request(tmp_path, steps=1))
    tiny_engine.denoise(tiny_engine.encode(resolved), resolved, on_step=again)
    assert len(refused) == 1
    assert "one generation at a time" in refused[0]


def test_a_closed_engine_says_so(tiny_h3_folder: Path, tmp_path: Path) -> None:
    with VideoEngine.from_pretrained(str(tiny_h3_folder)) as engine:
        pass
    engine.close()
    with pytest.raises(ModelError, match="closed"):
        engine.generate(request(tmp_path))


def test_long_and_unicode_prompts_run(tiny_engine: VideoEngine) -> None:
    resolved = tiny_engine.resolve(GenerationRequest(prompt="日本語 🎬 é\n" + "a red circle " * 800, steps=1))
    latents = tiny_engine.denoise(tiny_engine.encode(resolved), resolved)
    assert latents.video.shape == (1, 24, 37, 6, 10)
