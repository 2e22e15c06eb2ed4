import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from videoinfer.errors import MediaError
from videoinfer.media import fit_image, load_image

UPRIGHT = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 14  # six different pixels


def stored(orientation: int) -> np.ndarray:
    """The sensor's array for UPRIGHT, from the EXIF table: which visual sides row 0 and column 0 of the array are."""
    row0, column0 = {
        1: ("top", "left"),
        2: ("top", "right"),
        3: ("bottom", "right"),
        4: ("bottom", "left"),
        5: ("left", "top"),
        6: ("right", "top"),
        7: ("right", "bottom"),
        8: ("left", "bottom"),
    }[orientation]
    height, width = UPRIGHT.shape[:2]
    rows_are_columns = row0 in ("left", "right")
    out = np.empty((width, height, 3) if rows_are_columns else (height, width, 3), np.uint8)
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            x, y = (row, column) if rows_are_columns else (column, row)
            if "right" in (row0, column0):
                x = width - 1 - x
            if "bottom" in (row0, column0):
                y = height - 1 - y
            out[row, column] = UPRIGHT[y, x]
    return out


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(stored(orientation)).save(tmp_path / "a.png", exif=exif)
    image = load_image(tmp_path / "a.png")
    assert image.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(image), UPRIGHT)


@pytest.mark.parametrize("orientation", [0, 9, 200])
def test_an_orientation_that_does_not_exist_is_none(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(UPRIGHT).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(np.asarray(load_image(tmp_path / "a.png")), UPRIGHT)


def test_cmyk(tmp_path):
    inks = [(255, 0, 0, 0), (0, 255, 0, 0), (0, 0, 255, 0), (0, 0, 0, 255), (0, 0, 0, 0)]
    image = Image.new("CMYK", (5, 1))
    image.putdata(inks)
    image.save(tmp_path / "a.tiff")
    assert [load_image(tmp_path / "a.tiff").getpixel((x, 0)) for x in range(5)] == [
        (0, 255, 255),
        (255, 0, 255),
        (255, 255, 0),
        (0, 0, 0),
        (255, 255, 255),
    ]
    Image.new("CMYK", (16, 16), (255, 0, 0, 0)).save(tmp_path / "a.jpg")
    pixel = load_image(tmp_path / "a.jpg").getpixel((8, 8))
    assert np.abs(np.subtract(pixel, (0, 255, 255))).max() <= 3


@pytest.mark.parametrize(
    ("mode", "pixel", "expected"),
    [
        ("RGBA", (255, 0, 0, 255), (255, 0, 0)),
        ("RGBA", (255, 0, 0, 0), (255, 255, 255)),
        ("RGBA", (200, 100, 0, 128), (227, 177, 127)),  # c * 128/255 + 255 * 127/255
        ("LA", (0, 0), (255, 255, 255)),
        ("LA", (10, 255), (10, 10, 10)),
        ("L", 77, (77, 77, 77)),
        ("1", 1, (255, 255, 255)),
        ("RGB", (1, 2, 3), (1, 2, 3)),
    ],
)
def test_alpha_is_flattened_on_white(tmp_path, mode, pixel, expected):
    Image.new(mode, (3, 2), pixel).save(tmp_path / "a.png")
    image = load_image(tmp_path / "a.png")
    assert (image.mode, image.size) == ("RGB", (3, 2))
    assert np.abs(np.subtract(image.getpixel((1, 1)), expected)).max() <= 1


def test_palette_with_transparency(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    image.save(tmp_path / "a.png", transparency=1)
    image.save(tmp_path / "a.gif", transparency=1)
    for name in ("a.png", "a.gif"):
        assert [load_image(tmp_path / name).getpixel((x, 0)) for x in (0, 1)] == [(255, 0, 0), (255, 255, 255)]


@pytest.mark.parametrize("name", ["a.png", "a.tiff"])
def test_16_bit_greyscale_is_scaled_not_clipped(tmp_path, name):
    values = np.array([[0, 255, 257, 32896, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / name)
    red = np.asarray(load_image(tmp_path / name))[0, :, 0]
    assert np.abs(red - values[0] / 257).max() <= 1


def test_16_bit_rgb(tmp_path):
    (tmp_path / "a.png").write_bytes(png(1, 1, 16, 2, b"\0" + struct.pack(">HHH", 65535, 32896, 0)))
    assert load_image(tmp_path / "a.png").getpixel((0, 0)) == (255, 128, 0)


def test_32_bit_samples_are_refused(tmp_path):
    Image.fromarray(np.ones((2, 2), np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(MediaError, match="32-bit"):
        load_image(tmp_path / "a.tiff")


def png(width: int, height: int, depth: int, colour: int, rows: bytes | None) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    data = b"" if rows is None else chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + data


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("width", "height"), [(10_001, 10_000), (65_535, 65_535), (2_000_000_000, 2)])
def test_a_huge_picture_is_refused_from_its_header(tmp_path, width, height):
    # There are no pixels in this file: had decoding begun, the complaint would be another one.
    (tmp_path / "a.png").write_bytes(png(width, height, 8, 2, b""))
    with pytest.raises(MediaError, match=r"too large.*100 megapixels"):
        load_image(tmp_path / "a.png")


def test_one_pixel(tmp_path):
    Image.new("RGB", (1, 1), (9, 8, 7)).save(tmp_path / "a.png")
    image = load_image(tmp_path / "a.png")
    for fit in ("cover", "stretch"):
        assert fit_image(image, (64, 32), fit).getcolors() == [(64 * 32, (9, 8, 7))]
    assert fit_image(image, (64, 32), "contain").getpixel((32, 16)) == (9, 8, 7)


@pytest.mark.parametrize("extension", ["png", "jpg", "webp", "gif", "tiff", "bmp"])
def test_a_truncated_picture_says_so(tmp_path, extension):
    rng = np.random.default_rng(0)
    buffer = io.BytesIO()
    image = Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8))
    image.save(buffer, {"jpg": "jpeg"}.get(extension, extension))
    path = tmp_path / f"a.{extension}"
    path.write_bytes(buffer.getvalue()[: buffer.tell() // 2])
    with pytest.raises(MediaError, match=rf"a\.{extension}"):
        load_image(path)


def test_what_is_no_picture_is_named(tmp_path):
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "empty.png").touch()
    (tmp_path / "header.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    for name, message in {
        "text.png": "not a picture in a known format",
        "empty.png": "is empty",
        "header.png": "not a picture|damaged",
        "missing.png": "does not exist",
        ".": "is a folder",
    }.items():
        with pytest.raises(MediaError, match=message):
            load_image(tmp_path / name)


@given(st.binary(max_size=200), st.integers(0, 300))
@settings(max_examples=60, deadline=None)
def test_damage_never_escapes_as_another_error(tmp_path_factory, junk, position):
    path = tmp_path_factory.mktemp("junk") / "a.png"
    whole = png(16, 16, 8, 2, (b"\0" + bytes(range(48))) * 16)
    path.write_bytes(whole[:position] + junk + whole[position + len(junk) :])
    try:
        assert load_image(path).mode == "RGB"
    except MediaError as error:
        assert str(path) in str(error)


# --- fit -------------------------------------------------------------------------------------------------------------


def ramp(width: int, height: int) -> Image.Image:
    """Red tells x, green tells y, blue is on everywhere (so black can only be padding)."""
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([x, y, np.full_like(x, 255)], axis=-1).astype(np.uint8))


SIZES = st.tuples(st.integers(1, 90), st.integers(1, 90))


@given(SIZES, SIZES)
@settings(max_examples=80, deadline=None)
def test_stretch_and_cover_show_the_right_part(source, target):
    (sw, sh), (tw, th) = source, target
    for fit in ("stretch", "cover"):
        if fit == "stretch":
            step_x, step_y = sw / tw, sh / th
        else:  # one scale for both; the smaller step is the larger magnification
            step_x = step_y = min(sw / tw, sh / th)
        out = np.asarray(fit_image(ramp(sw, sh), (tw, th), fit)).astype(float)
        assert out.shape == (th, tw, 3)
        assert (out[..., 2] == 255).all()
        # The middle of the canvas shows the middle of the source, and each step on it is one step there. Near the edges
        # the filter has nothing beyond to look at, so only pixels two filter widths inside are compared.
        for axis, step, n, m in ((0, step_x, sw, tw), (1, step_y, sh, th)):
            position = (np.arange(m) + 0.5 - m / 2) * step + n / 2 - 0.5
            margin = 6 * max(step, 1)
            inside = (position > margin) & (position < n - 1 - margin)
            seen = out[th // 2, :, 0] if axis == 0 else out[:, tw // 2, 1]
            assert np.abs(seen - position)[inside].max(initial=0) <= 1.0


@given(SIZES, SIZES)
@settings(max_examples=80, deadline=None)
def test_contain_shows_everything_and_pads_with_black(source, target):
    (sw, sh), (tw, th) = source, target
    out = np.asarray(fit_image(ramp(sw, sh), (tw, th), "contain"))
    assert out.shape == (th, tw, 3)
    picture = out[..., 2] > 0
    columns, rows = np.flatnonzero(picture.any(axis=0)), np.flatnonzero(picture.any(axis=1))
    width, height = len(columns), len(rows)
    assert picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()  # one full rectangle
    assert (out[~picture] == 0).all()
    assert width == tw or height == th
    # Integer cross-multiplication: the other side follows the source's ratio to half a pixel, and is at least 1.
    if tw * sh <= th * sw:
        assert width == tw
        assert height == 1 or abs(2 * (height * sw - tw * sh)) <= sw
    else:
        assert height == th
        assert width == 1 or abs(2 * (width * sh - th * sw)) <= sh
    assert abs(columns[0] - (tw - 1 - columns[-1])) <= 1
    assert abs(rows[0] - (th - 1 - rows[-1])) <= 1


@pytest.mark.parametrize(
    ("size", "fit", "message"), [((8, 8), "crop", "cover, contain, stretch"), ((0, 8), "cover", "0x8")]
)
def test_a_wrong_fit_or_size_is_refused(size, fit, message):
    with pytest.raises(MediaError, match=message):
        fit_image(ramp(4, 4), size, fit)
