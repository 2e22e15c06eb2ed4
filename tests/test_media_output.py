import errno
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from videoinfer.errors import GenerationError, MediaError
from videoinfer.media import (
    check_clip,
    check_finite,
    checked_frames,
    published,
    read_sidecar,
    write_frames,
    write_gif,
    write_json,
    write_mp4,
)

FRAMES = np.random.default_rng(0).integers(0, 256, (5, 8, 6, 3), np.uint8)

WRITERS = [
    pytest.param(lambda path: write_json(path, {"a": 1}), "a.json", id="json"),
    pytest.param(lambda path: write_mp4(path, FRAMES, 24), "a.mp4", id="mp4"),
    pytest.param(lambda path: write_gif(path, FRAMES, 24), "a.gif", id="gif"),
    pytest.param(lambda path: write_frames(path, FRAMES), "frames", id="frames"),
]


@pytest.fixture
def read_only(tmp_path):
    """A folder that this process may not write to. Root may write anywhere, so it steps down for the test."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    folder.chmod(0o755)
    assert os.listdir(folder) == []
    folder.rmdir()


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_a_read_only_folder_is_named(read_only, write, name):
    with pytest.raises(MediaError, match=rf"{name}: no permission"):
        write(read_only / name)


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_a_file_in_place_of_the_folder_is_named(tmp_path, write, name):
    (tmp_path / "file").touch()
    with pytest.raises(MediaError, match=f"cannot write .*{name}"):
        write(tmp_path / "file" / name)


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_nothing_is_overwritten(tmp_path, write, name):
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(MediaError, match=f"{name} already exists"):
        write(tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"mine"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_a_full_disk_leaves_nothing(tmp_path, write, name, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    monkeypatch.setattr("videoinfer.media.export.imageio.imwrite", full)
    with pytest.raises(MediaError, match=f"{name}: the disk is full"):
        write(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_file_system_without_hard_links(tmp_path, monkeypatch):
    def no_link(*_, **__):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", no_link)
    write_json(tmp_path / "a.json", {"a": 1})
    assert read_sidecar(tmp_path / "a.json") == {"a": 1}
    with pytest.raises(MediaError, match="already exists"), published(tmp_path / "b.json") as part:
        part.write_text("ours")
        (tmp_path / "b.json").write_text("theirs")
    assert (tmp_path / "b.json").read_text() == "theirs"
    assert sorted(os.listdir(tmp_path)) == ["a.json", "b.json"]


def test_two_writers_of_one_name_do_not_meet(tmp_path):
    with published(tmp_path / "a.txt") as part:
        part.write_text("first")
        with pytest.raises(MediaError, match="another process"), published(tmp_path / "a.txt"):
            pytest.fail("the second writer got in")
    assert (tmp_path / "a.txt").read_text() == "first"


def test_a_dangling_link_counts_as_existing(tmp_path):
    (tmp_path / "a.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(MediaError, match="already exists"):
        write_json(tmp_path / "a.json", {})
    assert not (tmp_path / "nowhere").exists()


# --- sidecar ---------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
@settings(max_examples=15, deadline=None)
def test_a_sidecar_comes_back_equal(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("sidecar") / "a.json"
    write_json(path, data)
    assert read_sidecar(path) == data
    assert json.loads(path.read_bytes()) == data


def test_a_sidecar_is_readable_text(tmp_path):
    write_json(tmp_path / "a.json", {"prompt": "красный круг", "path": Path("x/y")})
    assert "красный круг" in (tmp_path / "a.json").read_text(encoding="utf-8")
    assert read_sidecar(tmp_path / "a.json")["path"] == "x/y"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object()])
def test_what_json_cannot_say_is_refused(tmp_path, value):
    with pytest.raises(MediaError, match=r"a\.json"):
        write_json(tmp_path / "a.json", {"value": value})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[1]", b"", b"[" * 100_000])
def test_what_is_no_sidecar_is_named(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(MediaError, match=r"a\.json"):
        read_sidecar(tmp_path / "a.json")


# --- PNG frames and GIF ----------------------------------------------------------------------------------------------


def test_png_frames_are_exact(tmp_path):
    assert write_frames(tmp_path / "frames", iter(FRAMES)) == 5
    names = sorted(os.listdir(tmp_path / "frames"))
    assert names == [f"frame_{index:05d}.png" for index in range(5)]
    for name, frame in zip(names, FRAMES, strict=True):
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "frames" / name)), frame)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize(("write", "name"), [(write_frames, "frames"), (lambda p, f: write_gif(p, f, 24), "a.gif")])
def test_when_the_source_fails_no_frames_are_left(tmp_path, write, name, error):
    def frames():
        yield FRAMES[0]
        raise error

    with pytest.raises(error):
        write(tmp_path / name, frames())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("fps", [8, 24, 29.97, 50])
def test_gif_keeps_frames_and_total_time(tmp_path, fps):
    frames = np.random.default_rng(1).integers(0, 256, (24, 8, 8, 3), np.uint8)
    write_gif(tmp_path / "a.gif", iter(frames), fps)
    with Image.open(tmp_path / "a.gif") as gif:
        assert (gif.n_frames, gif.size, gif.info["loop"]) == (24, (8, 8), 0)
        turns = []
        for index in range(24):
            gif.seek(index)
            turns.append(gif.info["duration"])
    assert sum(turns) == pytest.approx(24_000 / fps, abs=5)
    assert max(turns) - min(turns) <= 10


@pytest.mark.parametrize("fps", [0, 51, float("nan")])
def test_gif_frame_rates(tmp_path, fps):
    with pytest.raises(MediaError, match="1 to 50"):
        write_gif(tmp_path / "a.gif", FRAMES, fps)


@pytest.mark.parametrize(("write", "name"), [(write_frames, "frames"), (lambda p, f: write_gif(p, f, 24), "a.gif")])
def test_a_clip_without_frames_is_refused(tmp_path, write, name):
    with pytest.raises(MediaError, match="no frames"):
        write(tmp_path / name, [])
    assert os.listdir(tmp_path) == []


# --- checks ----------------------------------------------------------------------------------------------------------


def test_black_clips_fail_and_dark_ones_pass():
    black = np.zeros((4, 8, 8, 3), np.uint8)
    with pytest.raises(GenerationError, match="all 4 frames are black"):
        check_clip(black)
    check_clip(black[:0])
    dark = black.copy()
    dark[3, 7, 7, 2] = 20  # one dim pixel in the last frame
    check_clip(dark)
    check_clip(dark, np.zeros((2, 100), np.float32))  # silence is fine


def test_checked_frames_pass_through_in_order():
    frames = list(checked_frames(iter(FRAMES)))
    np.testing.assert_array_equal(np.stack(frames), FRAMES)


def test_a_black_clip_is_not_published(tmp_path):
    with pytest.raises(GenerationError, match="black"):
        write_mp4(tmp_path / "a.mp4", checked_frames(np.zeros((4, 8, 8, 3), np.uint8)), 24)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_are_counted_and_named(bad):
    torch = pytest.importorskip("torch")
    values = np.zeros((3, 4), np.float32)
    check_finite("the latents", values)
    check_finite("the latents", torch.from_numpy(values).to(torch.bfloat16))
    values[1, 2] = bad
    for held in (values, torch.from_numpy(values).to(torch.bfloat16)):
        with pytest.raises(GenerationError, match="the latents holds NaN or Inf in 1 of 12"):
            check_finite("the latents", held)
    with pytest.raises(GenerationError, match="the sound"):
        check_clip(FRAMES, values)
