"""Pictures in: any file that Pillow reads, as upright 8-bit RGB, and laid into a given canvas."""

from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps

from ..errors import MediaError
from ..regular_file import open_regular

Fit = Literal["cover", "contain", "stretch"]
FITS: tuple[Fit, ...] = ("cover", "contain", "stretch")
MAX_PIXELS = 100_000_000


def check_readable(path: Path, what: str) -> None:
    """Raises MediaError when `path` is missing, a folder, empty or not readable. `what` is the word for the user."""
    try:
        with open_regular(path) as file:
            if not file.read(1):
                raise MediaError(f"{path} is empty: expected {what}")
    except FileNotFoundError as error:
        raise MediaError(f"{path} does not exist: expected {what}") from error
    except IsADirectoryError as error:
        raise MediaError(f"{path} is a folder: expected {what}") from error
    except OSError as error:
        raise MediaError(f"{path} cannot be opened: {error.strerror or error}") from error


def load_image(path: str | Path) -> Image.Image:
    """The picture in `path` as an upright PIL image of mode RGB, 8 bits per channel.

    EXIF orientation is applied. Transparency is flattened on white. 16-bit greyscale is scaled to 8 bits; palettes,
    CMYK and one-channel pictures are converted; embedded colour profiles are not applied. Of an animation the first
    frame is taken.

    Raises MediaError: no such file, not a picture, damaged or cut off, 32-bit samples, more than 100 megapixels (known
    from the header, before anything is decoded).
    """
    path = Path(path)
    check_readable(path, "a picture")
    try:
        with Image.open(path) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise _too_large(path, f"{width}x{height}")
            image.load()
            return _flatten(ImageOps.exif_transpose(image), path)
    except MediaError:
        raise
    except Image.DecompressionBombError as error:  # Pillow's own check, inside open()
        raise _too_large(path, str(error)) from error
    except Image.UnidentifiedImageError as error:
        raise MediaError(f"{path} is not a picture in a known format: use PNG, JPEG, WebP, TIFF, GIF or BMP") from error
    except Exception as error:  # Pillow's readers raise OSError, SyntaxError, struct.error, ... on damaged data
        raise MediaError(f"{path} is damaged or cut off, and cannot be decoded: {error}") from error


def fit_image(image: Image.Image, size: tuple[int, int], fit: Fit = "cover") -> Image.Image:
    """`image` (mode RGB) as a picture of exactly `size` = (width, height).

    cover    scaled until it fills the canvas, keeping its shape; what stands over is cut off equally on both sides
    contain  scaled until all of it is inside, keeping its shape; centred on black
    stretch  scaled to the canvas, its shape changes

    Raises MediaError when `fit` or `size` is not allowed.
    """
    width, height = size
    if fit not in FITS:
        raise MediaError(f"fit={fit!r} is not allowed: use one of {', '.join(FITS)}")
    if width < 1 or height < 1:
        raise MediaError(f"size {width}x{height} is not allowed: both sides must be at least 1")
    if fit == "stretch":
        return image.resize(size, Image.Resampling.LANCZOS)
    if fit == "cover":
        scale = max(width / image.width, height / image.height)
        box_width, box_height = width / scale, height / scale  # the part of the source that is seen
        left, top = (image.width - box_width) / 2, (image.height - box_height) / 2
        # Rounding must not push the box over the edge by 1e-13: Pillow refuses that.
        box = (max(left, 0.0), max(top, 0.0), min(left + box_width, image.width), min(top + box_height, image.height))
        return image.resize(size, Image.Resampling.LANCZOS, box=box)
    scale = min(width / image.width, height / image.height)
    inner = (
        min(width, max(1, round(image.width * scale))),
        min(height, max(1, round(image.height * scale))),
    )
    canvas = Image.new("RGB", size, "black")
    canvas.paste(image.resize(inner, Image.Resampling.LANCZOS), ((width - inner[0]) // 2, (height - inner[1]) // 2))
    return canvas


def _flatten(image: Image.Image, path: Path) -> Image.Image:
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint32) * 255 // 65535).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        # Its range is not written anywhere in the file, so every scaling would be a guess.
        raise MediaError(f"{path} has 32-bit samples: save it with 8 or 16 bits per channel")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _too_large(path: Path, what: str) -> MediaError:
    return MediaError(
        f"{path} is too large ({what}): at most {MAX_PIXELS // 1_000_000} megapixels; scale it down first"
    )
