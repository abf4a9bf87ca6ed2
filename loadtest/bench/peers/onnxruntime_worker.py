"""Encodes with ONNX Runtime as most people run it: padded batches with a mask.

Settings: model (an ONNX file that reads input_ids and attention_mask), inputs, cores, sessions: so
many share the cores and take the batches in turns. Orders: max_batch_size, is_sorted (by length,
over all inputs), inputs (from and to).
"""

import importlib
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._numpy = importlib.import_module("numpy")
        onnxruntime = importlib.import_module("onnxruntime")
        self.version = onnxruntime.__version__
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings["cores"] // settings["sessions"]
        self._num_sessions, self._free = settings["sessions"], SimpleQueue[Any]()
        for _ in range(self._num_sessions):
            providers = ["CPUExecutionProvider"]
            session = onnxruntime.InferenceSession(settings["model"], options, providers=providers)
            self._free.put(session)
        self._inputs = settings["inputs"]["ids"]

    def prepare(self, order: dict[str, Any]) -> Any:
        ids = self._inputs[slice(*order["inputs"])]
        places = list(range(len(ids)))
        if order["is_sorted"]:
            places.sort(key=lambda place: -len(ids[place]))
        size = order["max_batch_size"]
        batches = [places[start : start + size] for start in range(0, len(places), size)]

        def encode(batch: list[int]) -> Any:
            return self._encode([ids[place] for place in batch])

        def run(_: Any) -> dict[int, Any]:
            with ThreadPoolExecutor(self._num_sessions) as pool:
                rows = list(pool.map(encode, batches))
            return {
                place: row
                for batch, found in zip(batches, rows, strict=True)
                for place, row in zip(batch, found, strict=True)
            }

        return run

    def outputs(self, raw: dict[int, Any]) -> list[list[float]]:
        return [raw[place].tolist() for place in sorted(raw)]

    def _encode(self, rows: list[list[int]]) -> Any:
        shape = len(rows), max(map(len, rows))
        ids, mask = (self._numpy.zeros(shape, "int64") for _ in range(2))
        for number, row in enumerate(rows):
            ids[number, : len(row)], mask[number, : len(row)] = row, 1
        session = self._free.get()
        [vectors] = session.run(None, {"input_ids": ids, "attention_mask": mask})
        self._free.put(session)
        return vectors
