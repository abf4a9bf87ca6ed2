"""Translates with slimt, text in and text out; all sentences in one call, or each in its own.

Settings: model (the Marian folder), inputs, cores. Orders: calls ("all" or "each"), inputs (from
and to).
"""

import importlib.util
from importlib.metadata import version
from pathlib import Path
from typing import Any

FILES = {"model": "model*.bin", "vocabulary": "vocab*.spm", "shortlist": "lex*.bin"}


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        slimt = _load_slimt()
        self.version = version("slimt")
        folder = Path(settings["model"])
        files = {name: str(next(folder.glob(pattern))) for name, pattern in FILES.items()}
        self._model = slimt.Model(slimt.preset.tiny(), slimt.Package(**files))
        self._service = slimt.Service(workers=settings["cores"])
        self._inputs = settings["inputs"]["texts"]

    def prepare(self, order: dict[str, Any]) -> Any:
        texts = self._inputs[slice(*order["inputs"])]
        calls = [[text] for text in texts] if order["calls"] == "each" else [texts]
        translate = self._service.translate
        return lambda _: [each for call in calls for each in translate(self._model, call)]

    def outputs(self, raw: list[Any]) -> list[str]:
        return [response.target.text for response in raw]


def _load_slimt() -> Any:
    """Load the extension alone: `import slimt` asks the network for lists of models."""
    package = importlib.util.find_spec("slimt")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'slimt'", name="slimt")
    [path] = Path(package.submodule_search_locations[0]).glob("_slimt*.so")
    spec = importlib.util.spec_from_file_location("_slimt", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
