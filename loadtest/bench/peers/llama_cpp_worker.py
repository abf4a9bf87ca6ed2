"""Continues a prompt with llama-cpp-python, one at a time: it has no batches from Python.

Settings: model (a GGUF file), inputs, cores, context. Orders: max_new_tokens, inputs (from and to).
"""

import importlib
from typing import Any


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        llama_cpp = importlib.import_module("llama_cpp")
        self.version = llama_cpp.__version__
        self._prompts = settings["inputs"]["ids"]
        self._model = llama_cpp.Llama(
            settings["model"],
            n_ctx=settings["context"],
            n_threads=settings["cores"],
            n_threads_batch=settings["cores"],
            verbose=False,
        )

    def prepare(self, order: dict[str, Any]) -> Any:
        """Generate greedily and past the end of a text; nothing is kept of an earlier run."""

        def run(first_token: Any) -> list[list[int]]:
            found = []
            for prompt in self._prompts[slice(*order["inputs"])]:
                self._model.reset()
                tokens = self._model.generate(prompt, temp=0.0, repeat_penalty=1.0)
                ids = [next(tokens)]
                first_token()
                found.append(ids + [next(tokens) for _ in range(order["max_new_tokens"] - 1)])
            return found

        return run

    def outputs(self, raw: list[list[int]]) -> list[list[int]]:
        return raw
