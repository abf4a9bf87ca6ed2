"""Translates with Hugging Face transformers: padded batches, `generate`, as most people run it.

Settings: model, inputs, cores. Orders: batch, beam, max_new_tokens, inputs (from and to). A whole
file goes in batches of 32 sentences of like lengths.
"""

import importlib
from typing import Any

FILE_BATCH = 32


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._torch = importlib.import_module("torch")
        transformers = importlib.import_module("transformers")
        self.version = transformers.__version__
        self._torch.set_num_threads(settings["cores"])
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(settings["model"])
        self._model = model.eval()
        self._inputs = settings["inputs"]["ids"]

    def prepare(self, order: dict[str, Any]) -> Any:
        ids = self._inputs[slice(*order["inputs"])]
        places = list(range(len(ids)))
        if order["batch"] is None:
            places.sort(key=lambda place: len(ids[place]))
        size = order["batch"] or FILE_BATCH
        batches = [places[start : start + size] for start in range(0, len(places), size)]

        def run(_: Any) -> dict[int, list[int]]:
            found: dict[int, list[int]] = {}
            for batch in batches:
                rows = self._generate([ids[place] for place in batch], order)
                found.update(zip(batch, rows, strict=True))
            return found

        return run

    def outputs(self, raw: dict[int, list[int]]) -> list[list[int]]:
        """Return the ids between the token that begins a translation and the one that ends it."""
        config = self._model.generation_config
        unwanted = {config.pad_token_id, config.eos_token_id}
        return [[i for i in raw[place][1:] if i not in unwanted] for place in sorted(raw)]

    def _generate(self, rows: list[list[int]], order: dict[str, Any]) -> list[list[int]]:
        longest = max(map(len, rows))
        pad = self._model.generation_config.pad_token_id
        ids = [row + [pad] * (longest - len(row)) for row in rows]
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        with self._torch.inference_mode():
            generated = self._model.generate(
                input_ids=self._torch.tensor(ids),
                attention_mask=self._torch.tensor(mask),
                num_beams=order["beam"],
                do_sample=False,
                max_new_tokens=order["max_new_tokens"],
            )
        found: list[list[int]] = generated.tolist()
        return found
