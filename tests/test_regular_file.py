import os
import signal
from pathlib import Path

import pytest
from PIL import Image

from videoinfer import GenerationRequest
from videoinfer.apps.flags import Flags, build_request
from videoinfer.apps.media_kind import media_kind
from videoinfer.errors import RequestError, VideoInferError
from videoinfer.loading import resolve_model
from videoinfer.media.images import load_image
from videoinfer.media.sidecar import read_sidecar
from videoinfer.regular_file import expanded, open_regular
from videoinfer.request import Output, Reference


def digest(path):
    return Reference(kind="image", path=path).digest()


@pytest.fixture
def at_once():
    """A second of waiting for the other end of a pipe fails the test instead of hanging it."""
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("waited for a pipe"))
    signal.alarm(5)
    yield
    signal.alarm(0)


@pytest.mark.parametrize("read", [media_kind, digest, load_image, read_sidecar])
@pytest.mark.parametrize("what", ["pipe", "device", "folder"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, at_once, read, what):
    path = {"pipe": tmp_path / "a.png", "device": Path("/dev/zero"), "folder": tmp_path}[what]
    if what == "pipe":
        os.mkfifo(path)
    with pytest.raises(VideoInferError, match="directory|folder" if what == "folder" else "pipe, socket or device"):
        read(path)


def test_a_file_behind_a_link_opens_and_a_missing_one_does_not(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with open_regular(tmp_path / "b") as file:
        assert file.read() == b"abc"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "c")


def test_only_a_home_that_exists_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~/a.png") == tmp_path / "a.png"
    for text in ("~a.png", "~no such user/a.png", "a~.png"):
        assert expanded(text) == Path(text)


def test_a_reference_and_an_output_whose_names_begin_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (8, 8)).save("~a.png")
    request = build_request(Flags(prompt="a", image=Path("~a.png"), output="~out/b.mp4"))
    assert request.references[0].path == tmp_path / "~a.png"
    assert request.output.path == Path("~out/b.mp4")


BYTES = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize(
    "build",
    [
        lambda: Output(path=Path(f"{BYTES}.mp4")),
        lambda: Output(folder=Path(BYTES)),
        lambda: Reference(kind="image", path=Path(f"{BYTES}.png")),
        lambda: resolve_model(BYTES),
        lambda: GenerationRequest(prompt="a", references=({"kind": "image", "path": f"{BYTES}.png"},)),
    ],
)
def test_a_name_that_no_sidecar_can_hold_is_refused_before_any_work(build):
    with pytest.raises(VideoInferError, match=r"caf\\xe9.*UTF-8"):
        build()


def test_a_name_that_leaves_no_room_for_its_part_file_is_refused_before_any_work(tmp_path):
    longest = Output(path=tmp_path / f"{'ü' * 107}a.mp4")
    assert len(os.fsencode(longest.path.name)) == 219
    longest.path.with_suffix(".latents.safetensors.videoinfer.part").touch()
    with pytest.raises(RequestError, match="name of 220 bytes is too long; use at most 219"):
        Output(path=tmp_path / f"{'ü' * 107}aa.mp4")
