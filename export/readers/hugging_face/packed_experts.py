"""Tensors that hold all experts of a layer (gpt-oss), in floats or in MXFP4 (OCP 2023).

Each expert becomes a tensor of its own, so that no more than one is in memory as floats. In MXFP4
32 numbers share a power of two; they lie as [experts, out, blocks, 16] in `..._blocks`, two in a
byte, and the exponents in `..._scales` (transformers/integrations/mxfp4.py).
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np
from gguf.quants import MXFP4

from export.readers.common.options import MOST_EXPERTS
from models.safetensors import BYTES, Array, Stored

TOGETHER = re.compile(r".*\.mlp\.experts\.(gate_up|down)_proj(_bias|_blocks)?")
BLOCKS, SCALES = "_blocks", "_scales"
LEVELS = np.array(MXFP4.kvalues, np.float32) / 2  # ggml has them doubled
PACKED = 16  # bytes of a block
BIAS = 127  # of exponents


def experts_apart(stored: Mapping[str, Stored]) -> dict[str, Stored]:
    """Return the tensors with those of experts by their numbers: `gate_up_proj.3`, [in, out]."""
    exponents = {name.removesuffix(BLOCKS) + SCALES for name in stored if _scales_of(name, stored)}
    rest = {name: tensor for name, tensor in stored.items() if name not in exponents}
    return dict(part for name in rest for part in _parts(name, stored))


def _parts(name: str, stored: Mapping[str, Stored]) -> Iterator[tuple[str, Stored]]:
    tensor, scales = stored[name], _scales_of(name, stored)
    if not TOGETHER.fullmatch(name) or not tensor.shape or tensor.shape[0] > MOST_EXPERTS:
        yield name, tensor
        return
    for number in range(tensor.shape[0]):
        part = tensor.part(number)
        whole = name.removesuffix(BLOCKS)
        yield f"{whole}.{number}", part if scales is None else _unpacked(part, scales.part(number))


def _scales_of(name: str, stored: Mapping[str, Stored]) -> Stored | None:
    """Return the exponents that fit the blocks `name`; None where there are none."""
    blocks, scales = stored[name], stored.get(name.removesuffix(BLOCKS) + SCALES)
    if scales is None or not name.endswith(BLOCKS) or {blocks.kind, scales.kind} != {BYTES}:
        return None
    return scales if len(blocks.shape) == 4 and blocks.shape == (*scales.shape, PACKED) else None


def _unpacked(blocks: Stored, scales: Stored) -> Stored:
    """Return the tensor [in, out] of blocks [out, blocks, 16] and scales [out, blocks]."""
    num_out, num_blocks = scales.shape

    def read() -> Array:
        packed = blocks.raw()
        values = LEVELS[np.stack([packed & 15, packed >> 4], axis=-1)].reshape(
            num_out, num_blocks, -1
        )
        exponents = scales.raw().astype(np.int32)[:, :, None] - BIAS
        return np.ldexp(values, exponents).reshape(num_out, -1).T

    return Stored("F32", (2 * PACKED * num_blocks, num_out), read)
