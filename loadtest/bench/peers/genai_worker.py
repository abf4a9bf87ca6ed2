"""Continues prompts with onnxruntime-genai, so many in one batch.

Settings: model (the folder of its model builder), inputs, cores (those the process is pinned to:
it takes as many threads). Orders: batch, max_new_tokens, inputs (from and to).
"""

import importlib
from typing import Any


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._genai = importlib.import_module("onnxruntime_genai")
        self.version = self._genai.__version__
        self._prompts = settings["inputs"]["ids"]
        self._model = self._genai.Model(settings["model"])

    def prepare(self, order: dict[str, Any]) -> Any:
        prompts = self._prompts[slice(*order["inputs"])]
        size = order["batch"]
        batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]

        def run(first_token: Any) -> list[list[int]]:
            return [
                row
                for batch in batches
                for row in self._generate(batch, order["max_new_tokens"], first_token)
            ]

        return run

    def outputs(self, raw: list[list[int]]) -> list[list[int]]:
        return raw

    def _generate(
        self, prompts: list[list[int]], num_tokens: int, first_token: Any
    ) -> list[list[int]]:
        """Generate greedily and past the end of a text; all prompts of a batch are as long."""
        length = len(prompts[0]) + num_tokens
        parameters = self._genai.GeneratorParams(self._model)
        parameters.set_search_options(
            do_sample=False, max_length=length, min_length=length, batch_size=len(prompts)
        )
        generator = self._genai.Generator(self._model, parameters)
        generator.append_tokens(prompts)
        for number in range(num_tokens):
            generator.generate_next_token()
            if number == 0:
                first_token()
        rows = [generator.get_sequence(row) for row in range(len(prompts))]
        return [[int(i) for i in row[len(prompts[0]) :]] for row in rows]
