"""How the makers of a model turn pictures into pixels: `preprocessor_config.json`."""

import re
from typing import Any

from export.readers.common.options import Options, read_options, unused_notes
from export.readers.hugging_face.folder import Folder

FILE, NEWER_FILE = "preprocessor_config.json", "processor_config.json"
RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # as Pillow counts
VIT: dict[str, Any] = {"do_center_crop": False, "size": 224, "resample": 2}
DEIT: dict[str, Any] = {"do_center_crop": True, "size": 256, "crop_size": 224, "resample": 3}
PROCESSORS = {
    f"{family}{kind}": defaults
    for family, defaults in (("ViT", VIT), ("DeiT", DEIT))
    for kind in ("ImageProcessor", "ImageProcessorFast", "FeatureExtractor")
}
WITHOUT_EFFECT = re.compile(
    r"_\w+|processor_class|data_format|device|disable_grouping|input_data_format|return_tensors"
    r"|do_convert_rgb|pad_size|default_to_square"  # pictures are RGB here whatever they were
)


def picture_options(folder: Folder, image_size: int) -> dict[str, Any]:
    """Read options of the architecture's vision. image_size: the side that the encoder reads."""
    options = _options(folder)
    for name in ("do_resize", "do_rescale"):
        options.only(name, True)
    options.only("do_pad", False)
    is_cropped = options.flag("do_center_crop", False)
    resized = _side(options, "size")
    if not is_cropped:
        options.use("crop_size")
    read = _side(options, "crop_size") if is_cropped else resized
    if read != image_size:
        options.refuse("crop_size" if is_cropped else "size", f"must be image_size {image_size}")
    has_norm = options.flag("do_normalize", True)
    values = {
        "resized": resized,
        "resample": RESAMPLING[options.integer("resample", at_most=len(RESAMPLING) - 1)],
        "scale": options.positive("rescale_factor", 1 / 255),
        "mean": _colour(options, "image_mean", 0.5 if has_norm else 0.0),
        "deviation": _colour(options, "image_std", 0.5 if has_norm else 1.0),
    }
    folder.notes.extend(unused_notes(options, WITHOUT_EFFECT))
    return values if has_norm else values | {"mean": (0.0,) * 3, "deviation": (1.0,) * 3}


def _options(folder: Folder) -> Options:
    """Read either file; the newer one has a section."""
    path, newer = folder.path / FILE, folder.path / NEWER_FILE
    if newer.is_file() and not path.is_file():
        options = read_options(newer, folder.problems).section("image_processor")
    else:
        options = read_options(path, folder.problems, is_required=True)
    name = "image_processor_type"
    kind = options.word(name, options.word("feature_extractor_type", "ViTImageProcessor"))
    if kind not in PROCESSORS:
        options.default_to(**{name: kind})
        options.refuse(name, f"is none of {', '.join(PROCESSORS)}")
    options.default_to(**PROCESSORS.get(kind, VIT))
    return options


def _side(options: Options, name: str) -> int:
    """Read the size of a square, a number or {height, width}."""
    if not isinstance(options.get(name), dict):
        return options.integer(name)
    size = options.section(name)
    for other in size.values.keys() - {"height", "width"}:
        size.refuse(other)
    height, width = size.integer("height"), size.integer("width")
    if height != width:
        options.refuse(name, "is no square")
    return height


def _colour(options: Options, name: str, default: float) -> tuple[float, ...]:
    colour = options.numbers(name) or (default,) * 3
    if len(colour) != 3:
        options.refuse(name, "must be three numbers")
    return colour
