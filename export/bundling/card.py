"""Writes the bundle's model card: the checkpoint's own, and what the export did to the model."""

from export.checking.parity import AnyParity
from serving.bundle.manifest import Precision

PRECISIONS = {
    Precision.FP32: "32-bit floating point",
    Precision.FP16: "16-bit floating point, for CUDA",
    Precision.BF16: "16-bit floating point with the range of 32 bits (bfloat16), for CUDA alone",
    Precision.INT8: "matrix products of 8-bit integers; the rest fp32",
    Precision.INT4: "weights in 4 bits, what they multiply and tables of words in 8; the rest fp32",
}


def bundle_card(own: str, name: str, precision: Precision, parity: AnyParity | None) -> str:
    """Markdown, after the checkpoint's ``own``. Without ``parity`` nothing was verified."""
    text = own or f"# {name}\n"
    found = parity.as_markdown() if parity else "Not verified against the torch model."
    return f"""{text.rstrip()}

## This bundle

ONNX graphs in {precision} ({PRECISIONS[precision]}), compared with the trained torch model in fp32:

{found}
"""
