"""The bundle's model card: the checkpoint's own, and what the export did to the model."""

from pathlib import Path

from export.parity import Parity
from serving.bundle.manifest import Precision

CARD_FILE = "README.md"
PRECISIONS = {
    Precision.FP32: "32-bit floating point",
    Precision.FP16: "16-bit floating point, for CUDA",
    Precision.INT8: "8-bit integer matrix products, activations scaled row by row; the rest fp32",
}


def bundle_card(checkpoint: Path, name: str, precision: Precision, parity: Parity | None) -> str:
    """Markdown. Without ``parity`` the card says that nothing was verified."""
    path = checkpoint / CARD_FILE
    text = path.read_text(encoding="utf-8") if path.is_file() else f"# {name}\n"
    found = parity.as_markdown() if parity else "Not verified against the torch model."
    return f"""{text.rstrip()}

## This bundle

ONNX graphs in {precision} ({PRECISIONS[precision]}), compared with the trained torch model in fp32:

{found}
"""
