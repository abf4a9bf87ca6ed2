"""The engines to compare with, each run as its users run it. Imported in their environment alone.

A worker is made from settings: model, inputs, cores. `prepare` takes an order: inputs (from and to)
and what the class needs beside it, and returns the call that is timed. `outputs` turns what that
call returned into token ids, texts or vectors, one for each input.
"""

import importlib
import importlib.util
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from typing import Any

FILE_BATCH = 32  # of a file, for engines that batch no more themselves
SLIMT_FILES = {"model": "model*.bin", "vocabulary": "vocab*.spm", "shortlist": "lex*.bin"}


def cut(values: Sequence[Any], size: int) -> list[Any]:
    return [values[start : start + size] for start in range(0, len(values), size)]


class CTranslate2:
    """Translates token ids with CTranslate2's own batches and threads.

    Settings: compute_type, workers (translations side by side, which share the cores). Orders:
    batch (sentences in flight; None is the whole file), max_batch_size, beam, max_new_tokens.
    """

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
        batches = cut(tokens, order["batch"] or len(tokens))
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
    """Return the tokens of the source and of the target of CTranslate2's model."""
    shared = folder / "shared_vocabulary.json"
    names = [shared, shared]
    if not shared.exists():
        names = [folder / f"{side}_vocabulary.json" for side in ("source", "target")]
    source, target = (json.loads(path.read_text(encoding="utf-8")) for path in names)
    return source, target


class Transformers:
    """Translates with Hugging Face transformers: padded batches and `generate`.

    Orders: batch (None is the whole file, in batches of 32 sentences of similar lengths), beam,
    max_new_tokens.
    """

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
        batches = cut(places, order["batch"] or FILE_BATCH)

        def run(_: Any) -> dict[int, list[int]]:
            token_ids: dict[int, list[int]] = {}
            for batch in batches:
                rows = self._generate([ids[place] for place in batch], order)
                token_ids.update(zip(batch, rows, strict=True))
            return token_ids

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
        token_ids: list[list[int]] = generated.tolist()
        return token_ids


class Slimt:
    """Translates texts with slimt. Orders: calls ("all" sentences in one call, or "each" alone)."""

    def __init__(self, settings: dict[str, Any]) -> None:
        slimt = _load_slimt()
        self.version = version("slimt")
        folder = Path(settings["model"])
        files = {name: str(next(folder.glob(pattern))) for name, pattern in SLIMT_FILES.items()}
        self._model = slimt.Model(slimt.preset.tiny(), slimt.Package(**files))
        self._service = slimt.Service(workers=settings["cores"])
        self._inputs = settings["inputs"]["texts"]

    def prepare(self, order: dict[str, Any]) -> Any:
        texts = self._inputs[slice(*order["inputs"])]
        calls = [[text] for text in texts] if order["calls"] == "each" else [texts]
        translate = self._service.translate
        return lambda _: [
            translation for call in calls for translation in translate(self._model, call)
        ]

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


class LlamaCpp:
    """Continues prompts with llama.cpp's server inside this process, without HTTP.

    Settings: context. Orders: batch (a slot for each), max_new_tokens.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._start = importlib.import_module("llama_cpp_server").start
        self.version = version("xllamacpp")
        self._settings = settings
        self._prompts = settings["inputs"]["ids"]
        self._num_slots = 0
        self._server: Any = None

    def prepare(self, order: dict[str, Any]) -> Any:
        """Generate greedily and past the end of a text."""
        if order["batch"] != self._num_slots:
            self._server = None  # the memory of one at a time
            settings = {**self._settings, "streams": order["batch"]}
            self._server = self._start(self._settings["model"], settings)
            self._num_slots = order["batch"]
        body = {"max_tokens": order["max_new_tokens"], "temperature": 0}
        body |= {"ignore_eos": True, "stream": True}
        bodies = [{**body, "prompt": ids} for ids in self._prompts[slice(*order["inputs"])]]

        def run(first_token: Any) -> list[list[str]]:
            with ThreadPoolExecutor(self._num_slots) as pool:
                return list(pool.map(lambda body: self._complete(body, first_token), bodies))

        return run

    def outputs(self, raw: list[list[str]]) -> list[list[str]]:
        """Return the texts of tokens: the ids are not in the answers. Raises RuntimeError."""
        completions = [[json.loads(line) for line in lines] for lines in raw]
        if errors := [chunk for chunks in completions for chunk in chunks if "error" in chunk]:
            raise RuntimeError(errors[0])
        # The last chunk only ends a stream.
        return [[chunk["choices"][0]["text"] for chunk in chunks[:-1]] for chunks in completions]

    def _complete(self, body: dict[str, Any], first_token: Any) -> list[str]:
        """Return the chunks of a streamed completion as JSON."""
        lines: list[str] = []

        def take(line: str) -> None:
            if not lines:
                first_token()
            lines.append(line)

        self._server.handle_completions(json.dumps(body), take)
        return lines


class OnnxRuntimeGenai:
    """Continues prompts with onnxruntime-genai, on as many threads as the process has cores.

    Orders: batch, max_new_tokens.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._genai = importlib.import_module("onnxruntime_genai")
        self.version = self._genai.__version__
        self._prompts = settings["inputs"]["ids"]
        self._model = self._genai.Model(settings["model"])

    def prepare(self, order: dict[str, Any]) -> Any:
        batches = cut(self._prompts[slice(*order["inputs"])], order["batch"])

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
        """Generate greedily and past the end of a text; the prompts of a batch have one length."""
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


class OnnxRuntime:
    """Encodes with ONNX Runtime over padded batches with a mask.

    Settings: sessions (they share the cores, and take the batches in turns). Orders:
    max_batch_size, is_sorted (by length, over all inputs).
    """

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
        batches = cut(places, order["max_batch_size"])

        def encode(batch: list[int]) -> Any:
            return self._encode([ids[place] for place in batch])

        def run(_: Any) -> dict[int, Any]:
            with ThreadPoolExecutor(self._num_sessions) as pool:
                rows = list(pool.map(encode, batches))
            return {
                place: row
                for batch, vectors in zip(batches, rows, strict=True)
                for place, row in zip(batch, vectors, strict=True)
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
