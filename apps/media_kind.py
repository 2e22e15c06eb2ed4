"""Tell whether a reference file is a picture, a clip or a sound, from its first bytes."""

from pathlib import Path
from typing import Literal

from ..errors import RequestError
from ..regular_file import expanded, open_regular

Kind = Literal["image", "video", "audio"]

_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (b"\x89PNG\r\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"GIF8", "image"),
    (b"BM", "image"),
    (b"II*\x00", "image"),
    (b"MM\x00*", "image"),
    (b"fLaC", "audio"),
    (b"ID3", "audio"),
    (b"\xff\xfb", "audio"),
    (b"\xff\xf3", "audio"),
    (b"\xff\xf2", "audio"),
    (b"\xff\xf1", "audio"),
    (b"\xff\xf9", "audio"),
    (b"\x1aE\xdf\xa3", "video"),
    (b"\x00\x00\x01\xba", "video"),
    (b"FLV", "video"),
)
_RIFF: dict[bytes, Kind] = {b"WEBP": "image", b"WAVE": "audio", b"AVI ": "video"}
SUFFIXES: dict[str, Kind] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".avif", ".heic"), "image"),
    **dict.fromkeys((".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".ogv"), "video"),
    **dict.fromkeys((".wav", ".mp3", ".m4a", ".aac", ".flac", ".ogg", ".oga", ".opus", ".mka"), "audio"),
}


def media_kind(path: Path) -> Kind:
    """The kind of a file, by content first and by its extension where the content does not tell.

    Raises RequestError: an address instead of a file, no such file, an empty one, or an unknown format.
    """
    if "://" in str(path) or str(path).startswith(("http:/", "https:/")):
        raise RequestError(f"the reference {path} is an address; download it first and give the file.")
    try:
        with open_regular(expanded(path)) as file:
            start = file.read(16)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(f"the reference {path} cannot be read: {reason}.") from error
    if not start:
        raise RequestError(f"the reference {path} is empty.")
    suffix = path.suffix.lower()
    if start[:4] == b"RIFF" and start[8:12] in _RIFF:
        return _RIFF[start[8:12]]
    if start[4:8] == b"ftyp":
        if start[8:12] in (b"avif", b"avis", b"heic", b"heix", b"mif1"):
            return "image"
        return "audio" if start[8:11] == b"M4A" or SUFFIXES.get(suffix) == "audio" else "video"
    if start[:4] in (b"OggS", b"\x1aE\xdf\xa3") and suffix in SUFFIXES:
        return SUFFIXES[suffix]  # These containers hold clips and sounds alike.
    for magic, kind in _MAGIC:
        if start.startswith(magic):
            return kind
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    raise RequestError(
        f"the reference {path} is of no known kind. Use a picture (png, jpg, webp, ...), a clip (mp4, mov, mkv, "
        "webm, ...) or a sound (wav, mp3, flac, ...)."
    )
