import errno
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from videoinfer.errors import MediaError
from videoinfer.jobs.intake import job_id
from videoinfer.jobs.on_disk import ClipPlace, remove_parts
from videoinfer.latents_file import read_latents, write_latents
from videoinfer.output_files import ClipFiles
from videoinfer.request import GenerationRequest, Output
from videoinfer.result import Latents

NAME = "a.latents.safetensors"


def some(seed: int = 0) -> Latents:
    generator = torch.Generator().manual_seed(seed)
    video = torch.randn(1, 24, 3, 6, 10, generator=generator)
    return Latents("ref2va", video, torch.randn(2, 32, 5, generator=generator))


def test_latents_come_back_bit_for_bit(tmp_path):
    latents = some()
    transposed = Latents("ref2va", latents.video.transpose(3, 4), latents.audio)  # not contiguous
    for number, written in enumerate((latents, transposed)):
        path = tmp_path / f"{number}.latents.safetensors"
        write_latents(path, written)
        found = read_latents(path)
        assert found.workflow == "ref2va"
        assert torch.equal(found.video, written.video) and torch.equal(found.audio, written.audio)
        assert set(load_file(path)) == {"video", "audio"}
    assert len(os.listdir(tmp_path)) == 2


def test_latents_replace_nothing(tmp_path):
    (tmp_path / NAME).write_bytes(b"mine")
    with pytest.raises(MediaError, match=f"{NAME} already exists"):
        write_latents(tmp_path / NAME, some())
    assert (tmp_path / NAME).read_bytes() == b"mine"
    assert os.listdir(tmp_path) == [NAME]


def test_a_full_disk_leaves_no_latents(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(MediaError, match=f"{NAME}: the disk is full"):
        write_latents(tmp_path / NAME, some())
    assert os.listdir(tmp_path) == []


def test_what_is_no_file_of_latents_is_named(tmp_path):
    with pytest.raises(MediaError, match=r"no latents .*a\.latents"):
        read_latents(tmp_path / NAME)
    (tmp_path / NAME).write_bytes(b"\x08")
    with pytest.raises(MediaError, match="holds no latents"):
        read_latents(tmp_path / NAME)
    save_file({"video": torch.zeros(1), "audio": torch.zeros(1)}, tmp_path / NAME)  # of another maker
    with pytest.raises(MediaError, match="holds no latents"):
        read_latents(tmp_path / NAME)
    save_file({"video": torch.zeros(1)}, tmp_path / NAME, {"workflow": "t2va"})
    with pytest.raises(MediaError, match="audio"):
        read_latents(tmp_path / NAME)


def asked(folder, **output) -> GenerationRequest:
    return GenerationRequest(prompt="x", id="a.b", output=Output(folder=folder, **output))


def test_the_file_is_named_after_the_clip_and_must_not_exist(tmp_path):
    files = ClipFiles(asked(tmp_path, latents=True))
    assert files.latents == tmp_path / "a.b.latents.safetensors"
    assert ClipPlace(tmp_path, "a.b").extras(asked(tmp_path, latents=True)) == [files.latents]
    assert ClipFiles(asked(tmp_path)).latents is None
    files.latents.touch()
    with pytest.raises(MediaError, match=r"a\.b\.latents\.safetensors already exists"):
        files.check_absent()


def test_a_job_with_latents_is_another_job_and_its_parts_are_cleared_away(tmp_path):
    plain, kept = asked(tmp_path), asked(tmp_path, latents=True)
    assert plain.content_hash() == kept.content_hash()
    assert job_id(plain, "c") != job_id(kept, "c")
    # The id that a queue from before latents could be asked for holds.
    assert job_id(plain, "c") == "6720ee3bd1bb9013"
    part = tmp_path / "a.b.latents.safetensors.videoinfer.part"
    part.touch()
    assert remove_parts(tmp_path, {"a"}) == 0
    assert remove_parts(tmp_path, {"a.b"}) == 1 and not part.exists()
