"""Turn picture files into the pixels that a model reads, as `transformers` does.

Files come from outside: only a few formats are read, and none that would fill the memory.
"""

from io import BytesIO

from PIL import Image, ImageOps, UnidentifiedImageError

from serving.bundle.manifest import Manifest, PictureSpec
from serving.errors import RequestError
from serving.requests.request import Picture

PICTURE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
MAX_PIXELS = 2**25  # a third more than 24 megapixels; 128 MiB in Pillow's memory

Image.MAX_IMAGE_PIXELS = None  # Pillow would warn; `opened` refuses


def read_picture(data: bytes, manifest: Manifest, field: str) -> Picture:
    """Return the source that a model reads of a file; of an animation, the first frame.

    Raises RequestError, naming the client's `field`, for files that cannot be read.
    """
    assert manifest.picture is not None
    pixels = read_pixels(data, manifest.picture, field)
    return Picture(pixels, manifest.limits.max_source_tokens or 0)


def read_pixels(data: bytes, spec: PictureSpec, field: str) -> bytes:
    """Return the levels that the encoder reads of a file. Raises RequestError."""
    whole = open_picture(data, field).resize(
        (spec.resized, spec.resized), Image.Resampling[spec.resample.upper()]
    )
    edge = (spec.resized - spec.size) // 2
    return whole.crop((edge, edge, edge + spec.size, edge + spec.size)).tobytes()


def open_picture(data: bytes, field: str) -> Image.Image:
    """Return the picture of a file, upright and in RGB. Raises RequestError."""
    try:
        with Image.open(BytesIO(data), formats=PICTURE_FORMATS) as picture:
            _check_size(picture, field)
            return _rgb(ImageOps.exif_transpose(picture))
    except RequestError:
        raise
    except UnidentifiedImageError:  # it only tells where in the memory the file was
        reason = "its format is none of these"
    except Exception as error:  # decoders of broken files raise errors of many kinds
        reason = str(error)
    message = f"no picture in {', '.join(PICTURE_FORMATS)} can be read of it: {reason}"
    raise RequestError(field, f"{len(data)} bytes", message)


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode == "P":  # of such with transparency Pillow warns
        picture = picture.convert("RGBA")
    if picture.mode.startswith("I"):  # 16 bits: Pillow would make all levels above 255 white
        picture = picture.point(lambda level: level * (1 / 256))
    return picture.convert("RGB")


def _check_size(picture: Image.Image, field: str) -> None:
    if picture.width * picture.height > MAX_PIXELS:
        size = f"{picture.width} x {picture.height}"
        raise RequestError(field, size, f"a picture may have {MAX_PIXELS} pixels at most")


def position_names(manifest: Manifest) -> tuple[str, ...]:
    """Return names of the positions of a picture: "row,column" of each patch, from 0. Class tokens,
    which come first, have none.
    """
    if manifest.picture is None:
        return ()
    num_first, num_all = manifest.picture.num_class_tokens, manifest.limits.max_source_tokens or 0
    side = round((num_all - num_first) ** 0.5)
    patches = (f"{row},{column}" for row in range(side) for column in range(side))
    return ("",) * num_first + tuple(patches)
