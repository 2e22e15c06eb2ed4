"""The files of one clip: mp4, sidecar, and the other forms that were asked for. Nothing is ever overwritten."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .errors import MediaError, NameTaken
from .latents_file import write_latents
from .media import write_frames, write_gif, write_json, write_mp4
from .media.publish import write_error
from .request import GenerationRequest
from .result import Clip, Latents


class ClipFiles:
    """`<name>.mp4` and `<name>.json`; for `output.frames` the folder `<name>_frames`, for `output.gif` `<name>.gif`,
    for `output.latents` `<name>.latents.safetensors`."""

    def __init__(self, request: GenerationRequest) -> None:
        self._request, self._output = request, request.output
        self._taken: set[Path] = set()
        self._choose()

    def _choose(self) -> None:
        request = self._request
        self.mp4 = request.output.target(request.request_id, self._taken)
        self.sidecar = self.mp4.with_suffix(".json")
        self.frames = self.mp4.with_name(f"{self.mp4.stem}_frames") if request.output.frames else None
        self.gif = self.mp4.with_suffix(".gif") if request.output.gif else None
        self.latents = self.mp4.with_suffix(".latents.safetensors") if request.output.latents else None

    def check_absent(self) -> None:
        """MediaError, before any work, when a file of that name exists or the folder cannot be written."""
        if self.mp4.suffix.lower() != ".mp4":
            raise MediaError(f"{self.mp4} is not an mp4: give a name that ends in .mp4.")
        for path in (self.mp4, self.sidecar, self.frames, self.gif, self.latents):
            if path is not None and os.path.lexists(path):
                raise MediaError(f"{path} already exists, and nothing is overwritten: give another name.")
        try:
            self.mp4.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.mp4.parent):
                pass
        except OSError as error:
            raise write_error(self.mp4, error) from error

    def write_clip(self, clip: Clip, record: dict[str, Any]) -> None:
        """The mp4; the request and the model go into its metadata, so that a clip alone tells how it was made.

        A name that was chosen here, and that another process took meanwhile, gives way to the next one.
        """
        while True:
            try:
                return self._write_mp4(clip, record)
            except NameTaken:
                if self._output.path is not None:
                    raise
                self._taken.add(self.mp4)
                self._choose()

    def _write_mp4(self, clip: Clip, record: dict[str, Any]) -> None:
        samples = round(len(clip.frames) / clip.fps * clip.sample_rate)  # audio latents round up to more than the video
        write_mp4(
            self.mp4,
            clip.frames,
            clip.fps,
            clip.audio[:, :samples],
            clip.sample_rate,
            crf=self._output.crf,
            metadata={name: json.dumps(record[name], ensure_ascii=False) for name in ("request", "actual", "model")},
        )

    def write_rest(self, clip: Clip, latents: Latents, record: dict[str, Any]) -> tuple[Path, ...]:
        """The sidecar and the other forms. MediaError says that the mp4 is there when one of them cannot be written."""
        written: list[Path] = []
        try:
            write_json(self.sidecar, record)
            if self.frames is not None:
                write_frames(self.frames, clip.frames)
                written.append(self.frames)
            if self.gif is not None:
                write_gif(self.gif, clip.frames, clip.fps)
                written.append(self.gif)
            if self.latents is not None:
                write_latents(self.latents, latents)
                written.append(self.latents)
        except MediaError as error:
            raise type(error)(f"the clip {self.mp4} is complete, but not all that belongs to it: {error}") from error
        return tuple(written)
