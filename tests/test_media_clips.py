from fractions import Fraction

import av
import numpy as np
import pytest

from videoinfer.errors import MediaError
from videoinfer.media import load_audio, load_video

# A 2 x 3 board of strong colours; each field is 16 pixels wide, so that chroma subsampling leaves the middles alone.
BOARD = np.array([[[220, 30, 30], [30, 220, 30], [30, 30, 220]], [[220, 220, 30], [30, 220, 220], [220, 220, 220]]])
FIELD = 16


def write(path, count=3, fps=Fraction(24), matrix=None, tone=None, channels=2, rate=44100, size=(48, 32)):
    """A file straight from av, without any code of ours."""
    pixels = BOARD.astype(np.uint8).repeat(FIELD, 0).repeat(FIELD, 1)[: size[1], : size[0]]
    layout = {1: "mono", 2: "stereo", 6: "5.1"}[channels]
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=fps, options={"crf": "8"})
        video.width, video.height, video.pix_fmt = pixels.shape[1], pixels.shape[0], "yuv420p"
        if matrix is not None:
            video.set_display_matrix(matrix)
        sound = container.add_stream("aac", rate=rate, layout=layout) if tone is not None else None
        for _ in range(count):
            container.mux(video.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")))
        container.mux(video.encode(None))
        if sound is not None:
            frame = av.AudioFrame.from_ndarray(tone.astype(np.float32), format="fltp", layout=layout)
            frame.sample_rate, frame.pts = rate, 0
            container.mux(sound.encode(frame))
            container.mux(sound.encode(None))
    return path


def board_of(frame):
    """The colour in the middle of each field."""
    return frame[FIELD // 2 :: FIELD, FIELD // 2 :: FIELD].astype(int)


@pytest.mark.parametrize("fps", [Fraction(24), Fraction(30), Fraction(25, 2), Fraction(24000, 1001), Fraction(60)])
def test_the_files_own_frame_rate_is_kept(tmp_path, fps):
    clip = load_video(write(tmp_path / "a.mp4", fps=fps))
    assert clip.fps == pytest.approx(float(fps), rel=1e-5)
    assert clip.frames.shape == (3, 32, 48, 3)
    assert clip.frames.dtype == np.uint8
    assert np.abs(board_of(clip.frames[1]) - BOARD).max() < 25


def test_no_sound_is_none(tmp_path):
    clip = load_video(write(tmp_path / "a.mp4"))
    assert clip.audio is None
    assert clip.sample_rate is None
    with pytest.raises(MediaError, match="holds no sound"):
        load_audio(tmp_path / "a.mp4")


@pytest.mark.parametrize(
    "abcd",
    [
        (1, 0, 0, 1),
        (-1, 0, 0, 1),
        (1, 0, 0, -1),
        (-1, 0, 0, -1),
        (0, 1, 1, 0),
        (0, -1, 1, 0),
        (0, 1, -1, 0),
        (0, -1, -1, 0),
    ],
)
def test_rotation_and_mirroring(tmp_path, abcd):
    a, b, c, d = abcd
    one = 65536
    clip = load_video(write(tmp_path / "a.mp4", matrix=[a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30]))
    # The QuickTime rule, field by field: x' = a x + c y, y' = b x + d y, then moved so that the smallest is 0.
    points = {(a * x + c * y, b * x + d * y): BOARD[y, x] for y in range(2) for x in range(3)}
    left, top = min(x for x, _ in points), min(y for _, y in points)
    shown = board_of(clip.frames[0])
    assert shown.shape[0] * shown.shape[1] == len(points)
    for (x, y), colour in points.items():
        assert np.abs(shown[y - top, x - left] - colour).max() < 25


def test_a_skewed_picture_is_refused(tmp_path):
    half = 46341  # 65536 / sqrt(2): 45 degrees
    path = write(tmp_path / "a.mp4", matrix=[half, half, 0, -half, half, 0, 0, 0, 1 << 30])
    with pytest.raises(MediaError, match="right angles"):
        load_video(path)


def tones(rate, seconds, *hertz):
    return np.stack([0.5 * np.sin(2 * np.pi * h * np.arange(int(rate * seconds)) / rate) for h in hertz])


def peak(samples, rate):
    return np.argmax(np.abs(np.fft.rfft(samples))) * rate / len(samples)


@pytest.mark.parametrize("rate", [44100, 48000, 22050])
def test_sound_keeps_rate_and_channels(tmp_path, rate):
    clip = load_video(write(tmp_path / "a.mp4", tone=tones(rate, 0.5, 440, 880), rate=rate))
    assert clip.sample_rate == rate
    assert clip.audio is not None
    assert clip.audio.dtype == np.float32
    assert clip.audio.shape[0] == 2
    assert abs(clip.audio.shape[1] - rate // 2) <= 1024
    assert [peak(channel, rate) for channel in clip.audio] == pytest.approx([440, 880], abs=4)


def test_mono_and_surround(tmp_path):
    mono, rate = load_audio(write(tmp_path / "mono.mp4", tone=tones(44100, 0.3, 500), channels=1))
    assert mono.shape[0] == 1
    assert peak(mono[0], rate) == pytest.approx(500, abs=5)
    surround, _ = load_audio(write(tmp_path / "51.mp4", tone=tones(44100, 0.3, *[500] * 6), channels=6))
    assert surround.shape[0] == 2
    assert np.abs(surround).max() <= 1


def test_sound_is_resampled_on_request(tmp_path):
    samples, rate = load_audio(
        write(tmp_path / "a.mp4", tone=tones(48000, 0.5, 440, 880), rate=48000), sample_rate=16000
    )
    assert rate == 16000
    assert abs(samples.shape[1] - 8000) <= 1024
    assert [peak(channel, rate) for channel in samples] == pytest.approx([440, 880], abs=4)


def test_wav_is_exact(tmp_path):
    tone = np.round(tones(8000, 0.1, 440, 880) * 32767).astype(np.int16)
    with av.open(str(tmp_path / "a.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="stereo")
        frame = av.AudioFrame.from_ndarray(tone.T.reshape(1, -1), format="s16", layout="stereo")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    samples, rate = load_audio(tmp_path / "a.wav")
    assert rate == 8000
    np.testing.assert_allclose(samples, tone / 32768, atol=1e-6)
    with pytest.raises(MediaError, match="holds no video"):
        load_video(tmp_path / "a.wav")


def test_a_clip_that_would_fill_the_memory_is_refused(tmp_path):
    path = write(tmp_path / "a.mp4", count=10)
    with pytest.raises(MediaError, match="too long"):
        load_video(path, max_bytes=5 * 32 * 48 * 3)


@pytest.mark.parametrize("load", [load_video, load_audio])
def test_what_is_no_clip_is_named(tmp_path, load):
    (tmp_path / "text.mp4").write_text("not a clip")
    (tmp_path / "empty.mp4").touch()
    whole = write(tmp_path / "whole.mp4", tone=tones(44100, 0.2, 440, 880)).read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])  # the index, at the end, is gone
    for name in ("text.mp4", "empty.mp4", "cut.mp4", "missing.mp4", "."):
        with pytest.raises(MediaError, match=str(tmp_path / name) if name != "." else "is a folder"):
            load(tmp_path / name)
