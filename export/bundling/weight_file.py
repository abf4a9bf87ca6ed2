"""The file of a bundle that holds the large tensors of all its graphs, each once."""

import hashlib
import os
from pathlib import Path

import numpy as np
import onnx_ir as ir

from export.graph.writer import Array, in_memory

WEIGHTS_FILE = "weights.bin"
SMALL_BYTES = 1024  # tensors up to this size stay in the graph's own file
ALIGNMENT = 4096  # of large tensors, so that ONNX Runtime can map them


class WeightFile:
    """A file of large tensors for all graphs of a bundle; equal tensors are stored once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = (folder / WEIGHTS_FILE).open("wb")
        self._offsets: dict[tuple[str, bytes], int] = {}

    def close(self) -> None:
        self._file.close()

    def flush(self) -> None:
        """Let readers of the file see what was stored so far."""
        self._file.flush()

    def store(self, name: str, array: Array) -> ir.TensorProtocol:
        """Write the array, if it is large; nothing of it stays in memory then."""
        if array.nbytes <= SMALL_BYTES:
            return in_memory(name, array)
        data = np.ascontiguousarray(array)
        raw = data.reshape(-1).view(np.uint8).data  # bfloat16 has no buffer of its own
        key = (data.dtype.name, hashlib.sha256(raw).digest())
        if key not in self._offsets:
            self._file.seek(-self._file.tell() % ALIGNMENT, os.SEEK_CUR)
            self._offsets[key] = self._file.tell()
            self._file.write(raw)
        return ir.ExternalTensor(
            WEIGHTS_FILE,
            self._offsets[key],
            data.nbytes,
            ir.DataType.from_numpy(data.dtype),
            shape=ir.Shape(data.shape),
            name=name,
            base_dir=self._folder,
        )
