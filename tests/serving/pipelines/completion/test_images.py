"""Pixels of pictures are those of `transformers`; broken and huge files are refused."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers import DeiTImageProcessorPil, ViTImageProcessorPil

from export.readers.hugging_face.pictures import RESAMPLING
from serving.bundle.manifest import PictureSpec
from serving.errors import RequestError
from serving.pipelines.completion.images import MAX_PIXELS, open_picture, read_pixels

MEAN, DEVIATION = (0.48, 0.45, 0.4), (0.26, 0.27, 0.28)
SIZES = [(224, 224), (500, 333), (17, 900), (1, 1), (40, 30)]


def file_of(picture: Image.Image, kind: str = "png", **options: Any) -> bytes:
    file = BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def random_picture(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    random = np.random.default_rng(sum(size))
    pixels = random.integers(0, 256, (size[1], size[0], 4), np.uint8)
    return Image.fromarray(pixels, "RGBA").convert(mode)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("resample", range(6), ids=RESAMPLING)
@pytest.mark.parametrize("is_cropped", [False, True])
def test_pixels_are_those_of_transformers(
    size: tuple[int, int], resample: int, is_cropped: bool
) -> None:
    picture = random_picture(size)
    kind = DeiTImageProcessorPil if is_cropped else ViTImageProcessorPil
    sizes: Any = {"size": {"height": 73, "width": 73}}
    sizes |= {"crop_size": {"height": 60, "width": 60}} if is_cropped else {}
    theirs = kind(resample=resample, image_mean=MEAN, image_std=DEVIATION, **sizes)
    expected = theirs(picture, return_tensors="np").pixel_values[0]

    spec = PictureSpec(60 if is_cropped else 73, 73, RESAMPLING[resample], 1)
    levels = np.frombuffer(read_pixels(file_of(picture), spec, "messages"), np.uint8)
    pixels = levels.reshape(spec.size, spec.size, 3) / 255
    assert np.abs((pixels - MEAN) / DEVIATION - expected.transpose(1, 2, 0)).max() < 1e-5


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
def test_any_colours_become_rgb(mode: str) -> None:
    picture = random_picture((20, 10), "L" if mode == "I;16" else mode)
    picture = picture.convert("I;16") if mode == "I;16" else picture
    opened = open_picture(file_of(picture), "messages")
    assert (opened.mode, opened.size) == ("RGB", (20, 10))


def test_levels_of_16_bits_are_scaled() -> None:
    levels = np.arange(0, 2**16, 257).astype(np.uint16).reshape(16, 16)
    pixels = np.asarray(open_picture(file_of(Image.fromarray(levels)), "messages"))
    assert (pixels[..., 0] == levels >> 8).all()


@pytest.mark.parametrize("kind", ["png", "webp"])
def test_a_turned_photo_is_read_upright(kind: str) -> None:
    upright, exif = random_picture((9, 5), "RGB"), Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    turned = file_of(upright.transpose(Image.Transpose.ROTATE_90), kind, exif=exif, lossless=True)
    assert open_picture(turned, "messages").tobytes() == upright.tobytes()


def test_the_first_frame_of_an_animation_is_read() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    for kind, options in (("gif", {}), ("webp", {"lossless": True})):
        file = file_of(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert open_picture(file, "messages").getpixel((4, 4)) == (255, 0, 0)


def test_huge_pictures_are_refused_before_they_are_read() -> None:
    file = file_of(Image.new("1", (MAX_PIXELS // 2000 + 1, 2000)))
    assert len(file) < 20_000
    with pytest.raises(RequestError, match="pixels at most"):
        open_picture(file, "messages")


@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 400))
def test_broken_files_are_refused(noise: bytes, kind: int, place: int) -> None:
    name = ("png", "jpeg", "webp", "gif")[kind]
    file = bytearray(file_of(random_picture((9, 7)), name))
    file[place : place + len(noise)] = noise
    try:
        assert open_picture(bytes(file), "messages").mode == "RGB"
    except RequestError as error:
        assert error.field == "messages"


@pytest.mark.parametrize("kind", ["bmp", "tiff", "ppm", "pdf", "ico"])
def test_other_formats_are_refused(kind: str) -> None:
    with pytest.raises(RequestError, match="no picture in PNG, JPEG, WEBP, GIF") as refusal:
        open_picture(file_of(random_picture((16, 16)), kind), "messages")
    assert "its format is none of these" in str(refusal.value)
