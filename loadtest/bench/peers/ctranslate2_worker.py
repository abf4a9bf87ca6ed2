"""Translates with CTranslate2: its own batches, its own threads, ids in and ids out.

Settings: model, inputs, cores, compute_type, workers (translations side by side; they share the
cores). Orders: batch (sentences in flight; None gives the whole file at once), max_batch_size,
beam, max_new_tokens, inputs (from and to).
"""

import importlib
import json
from pathlib import Path
from typing import Any


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        ctranslate2 = importlib.import_module("ctranslate2")
        self.version = ctranslate2.__version__
        self._sources, self._targets = vocabularies(Path(settings["model"]))
        self._ids = {token: number for number, token in enumerate(self._targets)}
        self._inputs = settings["inputs"]["ids"]
        self._translator = ctranslate2.Translator(
            settings["model"],
            compute_type=settings["compute_type"],
            inter_threads=settings["workers"],
            intra_threads=max(settings["cores"] // settings["workers"], 1),
        )

    def prepare(self, order: dict[str, Any]) -> Any:
        tokens = [[self._sources[i] for i in ids] for ids in self._inputs[slice(*order["inputs"])]]
        size = order["batch"] or len(tokens)
        batches = [tokens[start : start + size] for start in range(0, len(tokens), size)]
        options = {
            "beam_size": order["beam"],
            "max_decoding_length": order["max_new_tokens"],
            "max_batch_size": order["max_batch_size"],
        }

        def run(_: Any) -> list[Any]:
            translate = self._translator.translate_batch
            return [result for batch in batches for result in translate(batch, **options)]

        return run

    def outputs(self, raw: list[Any]) -> list[list[int]]:
        return [[self._ids[token] for token in result.hypotheses[0]] for result in raw]


def vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """Return the tokens of the source and of the target, in the order of their ids."""
    shared = folder / "shared_vocabulary.json"
    names = [shared, shared]
    if not shared.exists():
        names = [folder / f"{side}_vocabulary.json" for side in ("source", "target")]
    source, target = (json.loads(path.read_text(encoding="utf-8")) for path in names)
    return source, target
