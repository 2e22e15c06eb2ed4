"""The embedded model as a user meets it: its files, its limits, and clips through the real command line."""

import json
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

from videoinfer.apps import cli
from videoinfer.demo import suite
from videoinfer.demo.checker import read_clip
from videoinfer.demo.render import render_clip, render_picture
from videoinfer.demo.world import Scene
from videoinfer.engine import VideoEngine
from videoinfer.errors import RequestError
from videoinfer.request import GenerationRequest

WEIGHTS = Path(suite.__file__).parent / "weights"
SCENE = Scene("large", "cyan", "square", "moves right", "brown", (0.4, 0.5, 0.5, 0.5))


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "videoinfer.apps.cli", *arguments]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=600)


def frames_of(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


@pytest.fixture(scope="module")
def demo():
    with VideoEngine.from_pretrained("demo", device="cpu") as engine:
        yield engine


def test_the_weights_are_small_and_finite():
    files = list(WEIGHTS.rglob("*.safetensors"))
    assert {path.parent.name for path in files} == {"transformer", "text_encoder", "vae", "audio_vae"}
    assert sum(path.stat().st_size for path in WEIGHTS.rglob("*") if path.is_file()) < 30_000_000
    for path in files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - the handle is no mapping
                assert file.get_tensor(name).isfinite().all(), f"{path.name}: {name}"


def test_the_command_line_makes_a_clip_with_sound_and_repeats_it(tmp_path, monkeypatch):
    made = command("generate", SCENE.prompt(), "--steps", "2", "--seed", "5", "--json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    clip = tmp_path / told["path"]
    assert clip.parent == tmp_path / "out" and (told["width"], told["height"], told["num_frames"]) == (160, 96, 124)
    first = frames_of(clip)
    assert first.shape == (124, 96, 160, 3)
    with av.open(str(clip)) as container:
        assert container.streams.audio[0].codec_context.channels == 2

    monkeypatch.chdir(tmp_path)  # in this process now: it must be the same in any
    assert cli.main(["generate", "--from", told["sidecar"], "-o", "again.mp4"]) == 0
    assert np.array_equal(frames_of(tmp_path / "again.mp4"), first)


@pytest.mark.parametrize(
    ("wish", "message"), [({"size": "192x96"}, "160x96"), ({"num_frames": 141}, "124"), ({"duration": 7.0}, "209")]
)
def test_what_it_was_not_trained_on_is_refused_with_the_list(demo, wish, message):
    with pytest.raises(RequestError, match=message):
        demo.resolve(GenerationRequest(prompt=SCENE.prompt(), **wish))


@pytest.mark.parametrize("num_frames", [209, 362])
def test_the_long_clips_are_made_at_their_length(demo, num_frames):
    resolved = demo.resolve(GenerationRequest(prompt=SCENE.prompt(), num_frames=num_frames, steps=1))
    latents = demo.denoise(demo.encode(resolved), resolved)
    assert latents.video.shape[2] == 2 + 5 * (num_frames // 17)
    assert latents.audio.shape[2] == round(num_frames / 24 * 40)


def test_the_video_vae_keeps_what_it_encodes(demo):
    """Encoder and decoder were trained apart; together they must give the picture back."""
    pipeline = demo.model.stage("fl2va", "decode")
    frames = render_clip(SCENE, 22)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1, 1) for v in (pipeline.pixel_mean, pipeline.pixel_std))
    pixels = (frames.permute(3, 0, 1, 2)[None].float() / 255.0 - mean) / std
    with torch.no_grad():
        decoded = pipeline.vae.decode(pipeline.vae.encode(pixels).latent_dist.mode()).sample * std + mean
    assert decoded.shape == pixels.shape
    psnr = -10.0 * torch.log10((decoded.clamp(0, 1) - frames.permute(3, 0, 1, 2)[None] / 255.0).square().mean())
    assert float(psnr) > 24.0


def test_the_suite_knows_what_its_pictures_show(tmp_path):
    for workflow in suite.WORKFLOWS:
        cases = suite.make_cases(workflow, 6, tmp_path)
        assert [case.held_out for case in cases] == [True, False] * 3
        assert [case.request for case in cases] == [case.request for case in suite.make_cases(workflow, 6, tmp_path)]
    Image.fromarray(render_picture(SCENE).numpy()).save(tmp_path / "shape.png")
    lines = [
        {
            "prompt": "the shape of <Picture 1> moves up on a gray background",
            "references": [{"kind": "image", "path": "shape.png"}],
        },
        {"prompt": SCENE.prompt()},
    ]
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, lines)))
    reference, text = suite.read_cases(tmp_path / "cases.jsonl")
    assert reference.expected == {"colour": "cyan", "shape": "square", "motion": "moves up", "background": "gray"}
    assert text.expected["size"] == "large"


@pytest.mark.slow
@pytest.mark.parametrize("workflow", suite.WORKFLOWS)
def test_clips_show_what_was_asked(demo, workflow, tmp_path):
    right, asked = 0, 0
    for case in suite.make_cases(workflow, 4, tmp_path, seed=77):
        resolved = demo.resolve(case.request.model_copy(update={"num_frames": 124, "steps": 30}))
        clip = demo.decode(demo.denoise(demo.encode(resolved), resolved))
        reading = read_clip(torch.from_numpy(clip.frames), torch.from_numpy(clip.audio))
        right += sum(getattr(reading, name) == word for name, word in case.expected.items())
        asked += len(case.expected)
    assert right / asked > 0.75
