"""The sound of a clip as AAC packets, encoded by a thread of its own while the frames go through theirs."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from queue import SimpleQueue
from typing import Any

import av
import av.container
import numpy as np

from ..errors import MediaError

# What AAC can say in its two-byte header; every other rate needs resampling first.
AAC_RATES = (7350, 8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000)
BLOCK = 1024  # samples of an AAC packet


def checked_audio(audio: np.ndarray, sample_rate: int | None) -> np.ndarray:
    """The sound as float32 (C, N) in [-1, 1], louder samples clipped. MediaError for what AAC cannot hold."""
    if sample_rate not in AAC_RATES:
        raise MediaError(f"sample_rate={sample_rate} is not allowed: AAC knows {', '.join(map(str, AAC_RATES))} Hz")
    if audio.ndim != 2 or audio.shape[0] not in (1, 2) or not audio.shape[1]:
        raise MediaError(f"the sound has shape {audio.shape}: expected (channels, samples) with 1 or 2 channels")
    if not np.isfinite(audio).all():
        raise MediaError("the sound holds NaN or Inf, which no player can play")
    return np.clip(audio.astype(np.float32), -1.0, 1.0)


class Soundtrack:
    """Hands on the packets of a sound in time with the frames, waiting for the encoder where it is behind.

    The order in which packets are muxed is thus a matter of their times alone, and the file the same every time.
    """

    def __init__(self) -> None:
        self._packets: SimpleQueue[Any] = SimpleQueue()  # an exception, or None for the end, is the last item
        self._waiting: list[Any] = []  # the item that was not due yet

    def until(self, seconds: Fraction | None) -> list[Any]:
        """The packets that begin before `seconds`, or all that are left. Raises what the encoder raised."""
        due: list[Any] = []
        while True:
            item = self._waiting.pop() if self._waiting else self._packets.get()
            if isinstance(item, BaseException):
                raise item
            if item is None or (seconds is not None and item.pts * item.time_base >= seconds):
                self._waiting.append(item)
                return due
            due.append(item)

    def encode(self, stream: Any, samples: np.ndarray, sample_rate: int) -> None:
        """Encodes all samples; what goes wrong is raised where the packets are taken."""
        layout = "stereo" if samples.shape[0] == 2 else "mono"
        try:
            for start in range(0, samples.shape[1], BLOCK):
                block = np.ascontiguousarray(samples[:, start : start + BLOCK])
                frame = av.AudioFrame.from_ndarray(block, format="fltp", layout=layout)
                frame.sample_rate, frame.pts, frame.time_base = sample_rate, start, Fraction(1, sample_rate)
                self._add(stream.encode(frame))
            self._add(stream.encode(None))
            self.end()
        except BaseException as error:
            self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """No packet comes after those that are there already."""
        self._packets.put(error)

    def _add(self, packets: Iterable[Any]) -> None:
        for packet in packets:
            self._packets.put(packet)


@contextmanager
def soundtrack(
    container: av.container.OutputContainer, samples: np.ndarray | None, sample_rate: int | None
) -> Iterator[Soundtrack]:
    """Adds a stream for `samples` (float32 (C, N) at `sample_rate` Hz) and starts to encode it; None gives no packets.

    Every other stream must be there already. The encoder has ended when the context is left, however that happens.
    """
    track = Soundtrack()
    if samples is None or sample_rate is None:
        track.end()
        yield track
        return
    layout = "stereo" if samples.shape[0] == 2 else "mono"
    stream = container.add_stream("aac", rate=sample_rate, options={"b": "192k"}, layout=layout)
    container.start_encoding()  # opens the encoders, which must not happen in two threads
    with ThreadPoolExecutor(1, "soundtrack") as pool:
        pool.submit(track.encode, stream, samples, sample_rate)
        yield track
