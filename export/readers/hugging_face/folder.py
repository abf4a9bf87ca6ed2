"""Opens a Hugging Face folder, as far as all families read it alike.

    folder = open_folder(path)
    config = folder.make_config({"architecture": "llama", "vocab_size": ...})
    return folder.checkpoint(config, {"embedding.weight": folder.tensors.take(...)}, conventions)

Whatever is wrong is noted in `folder.problems`; both methods raise with all that was found so far.
Nothing here knows a family.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from export.readers.common.checkpoint_files import add_notes, checkpoint_files, write_card
from export.readers.common.options import Options, read_options, unused_notes
from export.readers.common.torch_files import LazyArray, read_torch
from export.readers.common.weights import StoredTensors, WeightReader
from export.readers.hugging_face.config_keys import KEYS, OF_CONFIG, OF_GENERATION, OF_TOKENIZER
from export.readers.hugging_face.tokenizers import (
    Tokenizers,
    read_tokenizers,
)
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.checkpoint import Checkpoint, CheckpointError
from models.conventions import Conventions
from models.files import read_file
from models.safetensors import Arrays, Stored, in_safetensors

CONFIG_FILE = "config.json"
MOST_SHARDS = 1000
MOST_INDEX_BYTES = 2**25  # 300,000 tensors
WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")
GIT_LFS = b"version https://git-lfs"
BASE_MODEL, HALF_MODEL = "Model", "EncoderModel"
NOT_QUANTISED = "is not supported: take the same model not quantised, or a .gguf file"
UNTIED = (
    "{file} says that input and output share one table of words, and lm_head.weight is stored with"
    " other numbers: it is used, as transformers 5 does"
)


@dataclass(frozen=True)
class Folder:
    """config, generation, tokenizer: `config.json`, `generation_config.json` and
    `tokenizer_config.json`. tokenizers: those of both sides, None if there are none that work.
    notes: what whoever exports it should know. facts: lines of the model card.
    """

    path: Path
    config: Options
    generation: Options
    tokenizer: Options
    tokenizers: Tokenizers | None
    tensors: StoredTensors
    problems: list[str]
    notes: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    @property
    def defaults(self) -> Options:
        """Options of generation; older folders have them in `config.json`."""
        return self.generation if self.generation.values else self.config

    def make_config(self, values: Mapping[str, Any]) -> AnyConfig:
        """Make the configuration of ours with these values. Raises CheckpointError, unless
        problems are such that the tensors can be looked at all the same.
        """
        try:
            config = parse_config(dict(values))
        except ModelConfigError as error:
            # Values that took the place of bad ones may not fit together.
            is_explained = any(problem.startswith(CONFIG_FILE) for problem in self.problems)
            problems = (
                [] if is_explained else [f"{CONFIG_FILE}: {problem}" for problem in error.problems]
            )
            self.problems.extend(problems)
            self.fail()
        if not self.tensors or any(problem.startswith(CONFIG_FILE) for problem in self.problems):
            self.fail()
        return config

    def checkpoint(
        self, config: AnyConfig, weights: Mapping[str, WeightReader], conventions: Conventions
    ) -> Checkpoint:
        """Put the model together, its weights still unread. Raises CheckpointError."""
        self.tensors.refuse_unused()
        if self.problems or self.tokenizers is None:
            self.fail()
        card = folder_card(self.path, self.config, self.facts)
        files = checkpoint_files(card, self.tokenizers.source, self.tokenizers.target)
        bits: Literal[8] | None = 8 if "quantization_config" in self.config else None
        model = Checkpoint(self.path, config, Arrays(weights), conventions, files, bits=bits)
        return add_notes(model, [*self.notes, *self._list_unused()])

    def _list_unused(self) -> Iterator[str]:
        """Yield a note for each file with options that were not read."""
        if self.defaults is not self.config:
            self.config.use(*KEYS)
        yield from unused_notes(self.config, OF_CONFIG, OF_GENERATION)
        yield from unused_notes(self.generation, OF_GENERATION)
        yield from unused_notes(self.tokenizer, OF_TOKENIZER)

    def check_head(self, *expected: str) -> None:
        """Check the classes in `architectures`. expected: ends of their names. A base model has no
        head, which is noted; any other class is refused.
        """
        for kind in self.config.words("architectures"):
            if kind.endswith(BASE_MODEL) and not kind.endswith((*expected, HALF_MODEL)):
                note = f"{CONFIG_FILE}: {kind} has no head that writes words; it is read with one"
                self.notes.append(note)
            elif not kind.endswith(expected):
                endings = ", ".join(f"...{end}" for end in expected)
                self.config.refuse("architectures", f"is none of {endings}")

    def fail(self) -> NoReturn:
        """Raise CheckpointError with all problems that were found."""
        raise CheckpointError(self.path, list(dict.fromkeys(self.problems)))  # some twice


def open_folder(path: Path) -> Folder:
    """Look at everything in the folder; what is wrong is noted in its problems."""
    problems: list[str] = []
    config = read_options(path / CONFIG_FILE, problems, is_required=True)
    _check_quantisation(config)
    return Folder(
        path,
        config,
        read_options(path / "generation_config.json", problems),
        read_options(path / "tokenizer_config.json", problems),
        read_tokenizers(path, problems),
        StoredTensors(stored_tensors(path, problems), problems),
        problems,
    )


def _check_quantisation(config: Options) -> None:
    """Refuse what is quantised in another way than gpt-oss, whose tensors tell which are."""
    if "quantization_config" in config:
        packing = config.section("quantization_config")
        packing.use("dequantize", "modules_to_not_convert")
        if (packing.get("quant_method"), config.get("model_type")) != ("mxfp4", "gpt_oss"):
            config.refuse("quantization_config", NOT_QUANTISED)
    if "quantization" in config:  # of MLX
        config.refuse("quantization", NOT_QUANTISED)


def stored_tensors(
    folder: Path, problems: list[str], names: Sequence[str] = WEIGHTS_FILES
) -> dict[str, Stored]:
    """Return all tensors of a folder by name, from the first of the files `names` that it has."""
    tensors: dict[str, Stored] = {}
    for path in _files(folder, problems, names):
        if _is_pointer(path):
            problems.append(f"{path.name} only points to a file: fetch that with `git lfs pull`")
            continue
        is_pickle = path.suffix == ".bin"
        tensors |= _in_pickle(path, problems) if is_pickle else in_safetensors(path, problems)
    return tensors


def _is_pointer(path: Path) -> bool:
    """Return whether Git has left a few lines in place of a large file."""
    try:
        with path.open("rb") as file:
            return file.read(len(GIT_LFS)) == GIT_LFS
    except OSError:
        return False


def _in_pickle(path: Path, problems: list[str]) -> dict[str, Stored]:
    """Read the tensors of one file of torch.save as data: nothing of it runs."""
    try:
        tree = read_torch(path)
    except CheckpointError as error:
        problems += [f"{path.name}: {problem}" for problem in error.problems]
        return {}
    if not isinstance(tree, dict):
        problems.append(f"{path.name} holds no tensors by name")
        return {}
    tensors = {str(name): tensor for name, tensor in tree.items() if isinstance(tensor, LazyArray)}
    return {
        name: Stored(tensor.kind, tensor.shape, tensor.read) for name, tensor in tensors.items()
    }


def _files(folder: Path, problems: list[str], names: Sequence[str]) -> Iterator[Path]:
    """Return the files with weights; a folder without any is a problem."""
    for name in names:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            yield folder / name
            return
        if index.is_file():
            yield from _shards(index, problems)
            return
    problems.append(f"{' or '.join(names)} is missing")


def _shards(index: Path, problems: list[str]) -> Iterator[Path]:
    options = read_options(index, problems, most_bytes=MOST_INDEX_BYTES).section("weight_map")
    names = sorted(set(map(str, options.values.values())))
    if len(names) > MOST_SHARDS:
        problems.append(f"{index.name} names {len(names)} files, more than {MOST_SHARDS}")
        return
    for name in names:
        if Path(name).name == name:
            yield index.parent / name
        else:
            problems.append(f"{index.name}: {name!r} is no name of a file beside it")


def folder_card(path: Path, config: Options, more: Sequence[str] = ()) -> bytes:
    """Write name, kind and licence in Markdown, as far as the folder says them, and more facts."""
    name = config.get("_name_or_path") or path.resolve().name
    facts = [f"Architecture: {config.get('model_type')}"]
    if licence := _licence(path / "README.md"):
        facts.append(f"Licence: {licence}")
    origin = f"Imported from the Hugging Face folder `{name}`."
    return write_card(path.resolve().name, origin, *facts, *more)


def _licence(path: Path) -> str | None:
    """Return `license` of the folder's own card, which begins with YAML between lines of `---`."""
    try:
        text = read_file(path).decode(errors="replace")
    except OSError:
        return None
    _, _, head = text.partition("---\n")
    for line in head.partition("\n---")[0].splitlines():
        name, _, value = line.partition(":")
        if name == "license":
            return value.strip().strip("\"'") or None
    return None
