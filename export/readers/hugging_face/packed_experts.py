"""Tensors that hold all experts of a layer (gpt-oss), in floats or in MXFP4 (OCP 2023).

Each expert's matrices become tensors of their own, so that no more than one is in memory as floats.
In MXFP4 32 numbers share a power of two; they lie as [experts, out, blocks, 16] in `..._blocks`,
two in a byte, and the exponents in `..._scales` (transformers/integrations/mxfp4.py).
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np
from gguf.quants import MXFP4

from export.readers.common.options import MOST_EXPERTS
from models.safetensors import BYTES, Array, Stored

TOGETHER = re.compile(r"(.*\.mlp\.experts\.)(gate_up|down)(_proj(?:_bias)?)(_blocks)?")
BLOCKS, SCALES = "_blocks", "_scales"
GATE_UP = {"gate": slice(0, None, 2), "up": slice(1, None, 2)}  # rows of both alternate
ROWS = {"gate_up": GATE_UP, "down": {"down": slice(None)}}
LEVELS = np.array(MXFP4.kvalues, np.float32) / 2  # ggml has them doubled
OF_A_BYTE = LEVELS[np.arange(256)[:, None] >> [0, 4] & 15]
PACKED = 16  # bytes of a block
BIAS = 127  # of exponents


def split_experts(stored: Mapping[str, Stored]) -> dict[str, Stored]:
    """Return the tensors, with those of experts by their numbers: `gate_proj.3`, [in, out]."""
    exponents = {name.removesuffix(BLOCKS) + SCALES for name in stored if _scales_of(name, stored)}
    rest = [name for name in stored if name not in exponents]
    return dict(part for name in rest for part in _parts(name, stored))


def _parts(name: str, stored: Mapping[str, Stored]) -> Iterator[tuple[str, Stored]]:
    tensor, scales, match = stored[name], _scales_of(name, stored), TOGETHER.fullmatch(name)
    if not match or len(tensor.shape) < 2 or tensor.shape[0] > MOST_EXPERTS:
        yield name, tensor
        return
    before, both, after, _ = match.groups()
    for number in range(tensor.shape[0]):
        for part, rows in ROWS[both].items():
            ours = f"{before}{part}{after}.{number}"
            if scales is None:
                yield ours, tensor.part(number, ..., rows)
            else:
                yield ours, _unpack(tensor.part(number, rows), scales.part(number, rows))


def _scales_of(name: str, stored: Mapping[str, Stored]) -> Stored | None:
    """Return the exponents that fit the blocks `name`; None where there are none."""
    blocks, scales = stored[name], stored.get(name.removesuffix(BLOCKS) + SCALES)
    if scales is None or {blocks.kind, scales.kind} != {BYTES}:
        return None
    return scales if len(scales.shape) == 3 and blocks.shape == (*scales.shape, PACKED) else None


def _unpack(blocks: Stored, scales: Stored) -> Stored:
    """Return the tensor [in, out] of blocks [out, blocks, 16] and scales [out, blocks]."""

    def read() -> Array:
        values = OF_A_BYTE[blocks.raw()].reshape(*scales.shape, 2 * PACKED)
        values *= np.ldexp(np.float32(1), scales.raw().astype(np.int32) - BIAS)[:, :, None]
        return values.reshape(len(values), -1).T

    return Stored("F32", (2 * PACKED * scales.shape[1], scales.shape[0]), read)
