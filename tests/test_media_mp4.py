import errno
import os
import resource
import struct
import subprocess
import sys
import threading
import time
import weakref
from fractions import Fraction

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from videoinfer.errors import MediaError
from videoinfer.media import mp4, probe_mp4, write_mp4
from videoinfer.media.soundtrack import AAC_RATES, Soundtrack

RATE = 44100


def picture(index, width=64, height=48):
    """A bright square that walks over a dark ground."""
    frame = np.full((height, width, 3), (40, 20, 90), np.uint8)
    frame[8:32, index : index + 24] = (230, 180, 30)
    return frame


def clip(count, **size):
    return (picture(index, **size) for index in range(count))


def tones(seconds, *hertz):
    time = np.arange(int(RATE * seconds)) / RATE
    return np.stack([0.5 * np.sin(2 * np.pi * h * time) for h in hertz]).astype(np.float32)


def read(path):
    """Plain av: decoded frames, the sound, and the two streams' facts."""
    with av.open(str(path)) as container:
        video = container.streams.video[0]
        facts = {"fps": video.average_rate, "pix_fmt": video.pix_fmt, "size": (video.width, video.height)}
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video)]
    sound = None
    with av.open(str(path)) as container:
        if container.streams.audio:
            stream = container.streams.audio[0]
            facts["sample_rate"], facts["channels"] = stream.rate, stream.channels
            blocks = [frame.to_ndarray() for frame in container.decode(stream)]
            sound = np.concatenate([np.zeros((stream.channels, 0)), *blocks], axis=1)
    return frames, sound, facts


def boxes(path):
    """Names of the top-level boxes of an mp4, in order (ISO 14496-12: 32-bit size, name; size 1 means 64-bit size)."""
    data, position, names = path.read_bytes(), 0, []
    while position < len(data):
        size, name = struct.unpack(">I4s", data[position : position + 8])
        if size == 1:
            (size,) = struct.unpack(">Q", data[position + 8 : position + 16])
        names.append(name.decode())
        position += size
    assert position == len(data)
    return names


def test_a_clip_plays_back(tmp_path):
    path = tmp_path / "a.mp4"
    found = write_mp4(path, clip(20), 24, tones(20 / 24, 440, 880), RATE)
    frames, sound, facts = read(path)
    assert len(frames) == found["frames"] == 20
    assert facts == {"fps": 24, "pix_fmt": "yuv420p", "size": (64, 48), "sample_rate": RATE, "channels": 2}
    for index, frame in enumerate(frames):
        error = np.abs(frame.astype(int) - picture(index))
        assert error.mean() < 4
        assert error[12:28, index + 4 : index + 20].max() < 20  # the square is where it should be, in its colour
    assert abs(sound.shape[1] - RATE * 20 // 24) <= 1024
    spectrum = np.abs(np.fft.rfft(sound, axis=1)).argmax(axis=1) * RATE / sound.shape[1]
    assert spectrum == pytest.approx([440, 880], abs=3)
    assert found["duration"] == pytest.approx(20 / 24)
    assert found["audio_duration"] == pytest.approx(20 / 24, abs=1024 / RATE)
    assert os.listdir(tmp_path) == ["a.mp4"]


def test_it_starts_fast(tmp_path):
    write_mp4(tmp_path / "a.mp4", clip(5), 24, tones(0.2, 440, 880), RATE)
    names = boxes(tmp_path / "a.mp4")
    assert names.index("moov") < names.index("mdat")


def test_flat_colours_survive_the_colour_matrix(tmp_path):
    colours = [(200, 30, 60), (20, 220, 40), (30, 40, 210), (255, 255, 255), (0, 0, 0), (128, 128, 128)]
    frames = [np.full((16, 16, 3), colour, np.uint8) for colour in colours]
    write_mp4(tmp_path / "a.mp4", frames, 24, crf=4)
    for frame, colour in zip(read(tmp_path / "a.mp4")[0], colours, strict=True):
        assert np.abs(frame.astype(int) - colour).max() <= 4


def test_no_sound_no_soundtrack(tmp_path):
    found = write_mp4(tmp_path / "a.mp4", clip(3), 24)
    assert found["audio_codec"] is None
    assert read(tmp_path / "a.mp4")[1] is None


def test_mono_stays_mono(tmp_path):
    assert write_mp4(tmp_path / "a.mp4", clip(12), 24, tones(0.5, 440), RATE)["channels"] == 1


@pytest.mark.parametrize("seconds", [0.01, 0.1, 2.0])
def test_sound_shorter_and_longer_than_the_picture(tmp_path, seconds):
    found = write_mp4(tmp_path / "a.mp4", clip(12), 24, tones(seconds, 440, 880), RATE)
    assert found["audio_duration"] == pytest.approx(seconds, abs=1100 / RATE)


@pytest.mark.parametrize(
    ("fps", "exact"),
    [(24, 24), (12.5, Fraction(25, 2)), (23.976, Fraction(24000, 1001)), (29.97, Fraction(30000, 1001)), (60.0, 60)],
)
def test_frame_rates_are_exact(tmp_path, fps, exact):
    write_mp4(tmp_path / "a.mp4", clip(8), fps)
    assert read(tmp_path / "a.mp4")[2]["fps"] == exact


def test_settings_and_metadata_come_back(tmp_path):
    told = {"prompt": "ein großer roter Kreis 🔴 " * 400, "seed": "7", "empty": "", "quote": '"\\;=\n#'}
    found = write_mp4(tmp_path / "a.mp4", clip(3), 24, crf=23, preset="fast", metadata=told)
    for metadata in (found["metadata"], probe_mp4(tmp_path / "a.mp4")["metadata"]):
        encoder = metadata.pop("encoder")
        assert (encoder["crf"], encoder["preset"], encoder["threads"]) == (23, "fast", 2)
        assert metadata == told


def test_crf_matters_and_the_same_call_gives_the_same_bytes(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (6, 64, 64, 3), np.uint8)
    for name, crf in (("a", 10), ("b", 10), ("c", 40)):
        write_mp4(tmp_path / f"{name}.mp4", noise, 24, crf=crf)
    a, b, c = ((tmp_path / f"{name}.mp4").read_bytes() for name in "abc")
    assert a == b
    assert len(c) < len(a) / 2


def test_frames_stream_through(tmp_path):
    alive = weakref.WeakSet()
    most = 0

    class Frame(np.ndarray):  # plain arrays cannot be put into a WeakSet: they compare by value
        __hash__ = object.__hash__
        __eq__ = object.__eq__

    def frames():
        nonlocal most
        for index in range(60):
            frame = picture(index % 30).view(Frame)
            alive.add(frame)
            most = max(most, len(alive))
            yield frame

    write_mp4(tmp_path / "a.mp4", frames(), 24)
    assert most <= 4


def test_nothing_is_overwritten(tmp_path):
    def asked():
        pytest.fail("the clip was made before the name was checked")
        yield

    (tmp_path / "a.mp4").write_bytes(b"mine")
    with pytest.raises(MediaError, match=r"a\.mp4 already exists"):
        write_mp4(tmp_path / "a.mp4", asked(), 24)
    assert (tmp_path / "a.mp4").read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["a.mp4"]


def test_a_file_that_appears_meanwhile_is_kept(tmp_path):
    def frames():
        yield picture(0)
        (tmp_path / "a.mp4").write_bytes(b"theirs")

    with pytest.raises(MediaError, match="already exists"):
        write_mp4(tmp_path / "a.mp4", frames(), 24)
    assert (tmp_path / "a.mp4").read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["a.mp4"]


def test_the_folder_is_made_and_an_old_part_taken_over(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.mp4.videoinfer.part").write_bytes(b"x" * 100_000)
    write_mp4(tmp_path / "new" / "a.mp4", clip(3), 24)
    write_mp4(tmp_path / "new" / "er" / "b.MP4", clip(3), 24)
    assert sorted(os.listdir(tmp_path / "new")) == ["a.mp4", "er"]
    assert boxes(tmp_path / "new" / "a.mp4")[0] == "ftyp"


@pytest.mark.parametrize("error", [RuntimeError("model broke"), KeyboardInterrupt()])
@pytest.mark.parametrize("after", [0, 1, 30])
def test_when_the_source_fails_nothing_is_left(tmp_path, error, after):
    def frames():
        yield from clip(after)
        raise error

    with pytest.raises(type(error)):
        write_mp4(tmp_path / "a.mp4", frames(), 24, tones(1, 440, 880), RATE)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_said_and_nothing_is_left(tmp_path, monkeypatch):
    class Full:
        def __init__(self, container):
            self.container, self.calls = container, 0

        def __getattr__(self, name):
            return getattr(self.container, name)

        def mux(self, packets):
            self.calls += 1
            if self.calls > 5:
                raise av.error.OSError(errno.ENOSPC, "No space left on device")
            self.container.mux(packets)

    encode = mp4._encode
    monkeypatch.setattr(mp4, "_encode", lambda container, *rest: encode(Full(container), *rest))
    with pytest.raises(MediaError, match=r"a\.mp4: the disk is full"):
        write_mp4(tmp_path / "a.mp4", clip(30), 24)
    assert os.listdir(tmp_path) == []


def test_a_write_that_the_system_refuses_is_met(tmp_path):
    """The real thing, below av: the kernel stops this process from writing more than 4 kB into a file."""
    noise = np.random.default_rng(0).integers(0, 256, (12, 128, 128, 3), np.uint8)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(MediaError, match=r"a\.mp4"):
            write_mp4(tmp_path / "a.mp4", noise, 24)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_a_clip_that_reads_back_wrong_is_not_published(tmp_path, monkeypatch):
    encode = mp4._encode
    monkeypatch.setattr(mp4, "_encode", lambda *arguments: encode(*arguments) + 1)  # as if a frame had been lost
    with pytest.raises(MediaError, match="frames is 3, expected 4"):
        write_mp4(tmp_path / "a.mp4", clip(3), 24)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_probe_notices_a_cut_file(tmp_path, keep):
    write_mp4(tmp_path / "a.mp4", np.random.default_rng(0).integers(0, 256, (24, 64, 64, 3), np.uint8), 24)
    data = (tmp_path / "a.mp4").read_bytes()
    (tmp_path / "b.mp4").write_bytes(data[: int(len(data) * keep)])
    try:
        assert probe_mp4(tmp_path / "b.mp4")["frames"] < 24
    except MediaError as error:
        assert "b.mp4" in str(error)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "a.avi"}, "ends in .mp4"),
        ({"frames": []}, "no frames"),
        ({"frames": [np.zeros((33, 64, 3), np.uint8)]}, "64x33.*even sides"),
        ({"frames": [np.zeros((32, 1, 3), np.uint8)]}, "1x32.*even sides"),
        ({"frames": [np.zeros((32, 32), np.uint8)]}, "frame 0 has shape"),
        ({"frames": [np.zeros((32, 32, 4), np.uint8)]}, "frame 0 is uint8 of shape"),
        ({"frames": [np.zeros((32, 32, 3), np.float32)]}, "frame 0 is float32"),
        ({"frames": [picture(0), picture(1, width=32)]}, "frame 1 is uint8 of shape"),
        ({"fps": 0}, "fps=0"),
        ({"fps": float("nan")}, "fps=nan"),
        ({"crf": 52}, "crf=52"),
        ({"preset": "warp"}, "preset"),
        ({"audio": np.zeros((2, 100), np.float32)}, "sample_rate=None"),
        ({"audio": np.zeros((2, 100), np.float32), "sample_rate": 44000}, "sample_rate=44000"),
        ({"audio": np.zeros((2, 0), np.float32), "sample_rate": RATE}, "shape"),
        ({"audio": np.zeros((100, 2), np.float32), "sample_rate": RATE}, "shape"),
        ({"audio": np.full((2, 100), np.nan, np.float32), "sample_rate": RATE}, "NaN"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, change, message):
    arguments = {"path": "a.mp4", "frames": [picture(0)], "fps": 24} | change
    with pytest.raises(MediaError, match=message):
        write_mp4(tmp_path / arguments.pop("path"), **arguments)
    assert os.listdir(tmp_path) == []


def test_loud_sound_is_clipped(tmp_path):
    found = write_mp4(tmp_path / "a.mp4", clip(6), 24, 100 * tones(0.25, 440, 880), RATE)
    assert found["channels"] == 2
    assert 0.9 < np.abs(read(tmp_path / "a.mp4")[1]).max() < 5  # a coded square wave overshoots; the sine had 50


@given(
    width=st.integers(1, 40).map(lambda n: 2 * n),
    height=st.integers(1, 40).map(lambda n: 2 * n),
    count=st.integers(1, 7),
    fps=st.sampled_from([8, 24, 25, 29.97, 60]),
    samples=st.none() | st.integers(1, 5000),
    rate=st.sampled_from(AAC_RATES),
)
@settings(max_examples=25, deadline=None)
def test_every_small_clip_is_whole(tmp_path_factory, width, height, count, fps, samples, rate):
    path = tmp_path_factory.mktemp("clip") / "a.mp4"
    audio = None if samples is None else np.linspace(-1, 1, 2 * samples, dtype=np.float32).reshape(2, samples)
    frames = np.random.default_rng(count).integers(0, 256, (count, height, width, 3), np.uint8)
    write_mp4(path, frames, fps, audio, rate)
    decoded, sound, facts = read(path)
    assert len(decoded) == count
    assert facts["size"] == (width, height)
    if samples is None:
        assert sound is None
    else:  # AAC blocks hold 1024 samples, and the container counts milliseconds
        assert abs(sound.shape[1] - samples) <= 1024 + rate / 1000


def test_one_clip_is_one_file_whatever_fresh_memory_holds(tmp_path):
    make = """
import sys, numpy as np
from videoinfer.media import write_mp4
grain = np.random.default_rng(0).integers(0, 12, (124, 96, 160, 3), np.uint8)
y, x = np.mgrid[:96, :160]
ball = lambda k: np.stack([((x - 40 - k // 2) ** 2 + (y - 50) ** 2 < 300) * 180 + 30, x + k // 4, y * 2], -1)
sound = np.random.default_rng(1).uniform(-1, 1, (2, 165333)).astype(np.float32)
write_mp4(sys.argv[1], (ball(k).astype(np.uint8) + grain[k] for k in range(124)), 24, sound, 32000)
"""
    found = set()
    for byte in ("0", "1", "255"):  # glibc fills what it hands out with it; 0: not at all
        path = tmp_path / f"{byte}.mp4"
        environment = os.environ | {"MALLOC_PERTURB_": byte}
        subprocess.run([sys.executable, "-P", "-c", make, path], check=True, env=environment)
        found.add(path.read_bytes())
    assert len(found) == 1


@pytest.mark.parametrize("late", ["sound", "frames"])
def test_one_clip_is_one_file_whichever_encoder_is_behind(tmp_path, monkeypatch, late):
    sound = np.random.default_rng(1).uniform(-1, 1, (2, 5 * RATE)).astype(np.float32)
    frames = list(clip(120))
    write_mp4(tmp_path / "a.mp4", frames, 24, sound, RATE)
    add = Soundtrack._add
    if late == "sound":
        monkeypatch.setattr(Soundtrack, "_add", lambda *arguments: (time.sleep(0.005), add(*arguments)))
    else:
        frames = (time.sleep(0.005) or frame for frame in frames)
    write_mp4(tmp_path / "b.mp4", frames, 24, sound, RATE)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


@pytest.mark.parametrize("broken", ["sound", "frames"])
def test_what_breaks_one_encoder_ends_both(tmp_path, monkeypatch, broken):
    def fail(*_):
        raise ZeroDivisionError("broken here")

    frames = (picture(k) if k < 20 or broken == "sound" else fail() for k in range(48))
    if broken == "sound":
        monkeypatch.setattr(Soundtrack, "_add", fail)
    with pytest.raises(ZeroDivisionError, match="broken here"):
        write_mp4(tmp_path / "a.mp4", frames, 24, tones(10, 440, 880), RATE)
    assert os.listdir(tmp_path) == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("soundtrack")]
