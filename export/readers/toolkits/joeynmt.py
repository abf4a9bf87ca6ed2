"""Folders of JoeyNMT (Kreutzer et al. 2019), 1.x and 2.x.

    config.yaml  best.ckpt  src_vocab.txt  trg_vocab.txt

Sources end with </s>; targets begin with <s> and end before </s> (joeynmt/datasets.py). The source
is the folder, or a checkpoint in it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from export.readers.common.options import Options, limit_split_tokens, read_yaml
from export.readers.common.torch_files import is_torch_file, read_torch
from export.readers.toolkits.joeynmt_models import Embeddings, JoeyNMTRecurrent, JoeyNMTTransformer
from export.readers.toolkits.toolkit import TorchModel, language_options
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint, CheckpointError
from models.conventions import Conventions
from models.files import read_text

CONFIG = "config.yaml"
ENDING = ".ckpt"
BEST = ("best.ckpt", "latest.ckpt")  # links to one of the others
SPECIAL = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
READERS: dict[str, type[JoeyNMTRecurrent] | type[JoeyNMTTransformer]] = {
    "recurrent": JoeyNMTRecurrent,
    "transformer": JoeyNMTTransformer,
}
SIDES = {"src": "source", "trg": "target"}


def can_read(source: Path) -> bool:
    """Return whether the source is a checkpoint of JoeyNMT, or a folder with one."""
    path = _file(source)
    has_config = path is not None and (path.parent / CONFIG).is_file()
    return path is not None and has_config and is_torch_file(path)


def _file(source: Path) -> Path | None:
    if source.is_file():
        return source if source.suffix == ENDING else None
    if not source.is_dir():
        return None
    named = [source / name for name in BEST if (source / name).is_file()]
    found = named or [path for path in source.iterdir() if path.suffix == ENDING and path.is_file()]
    return found[0] if named or len(found) == 1 else None


def read_checkpoint(source: Path) -> Checkpoint:
    """Return the model, its weights not read yet. Raises CheckpointError with every problem."""
    path = _file(source)
    if path is None:
        raise CheckpointError(source, ["it holds no checkpoint, or several"])
    problems: list[str] = []
    config = Options(CONFIG, read_yaml(path.parent / CONFIG, problems), problems)
    model = TorchModel(path, "JoeyNMT", config.section("model").values, _state(path), problems)
    embeddings = Embeddings(model)
    words = Words(model, config.section("data"), embeddings)
    reader = _reader(model, embeddings)
    values = reader.values() | words.values
    values["split_tokens"] = limit_split_tokens(words.longest_source)
    model.check()
    found = model.configured(values)
    conventions = Conventions(
        source_suffix=(words.ids["eos"],),
        prompt_prefix=(words.ids["bos"],),
        stop=(words.ids["eos"],),
        unk=words.ids["unk"],
        generation=_generation(config.section("testing")),
    )
    weights = reader.weights(found)
    return replace(model.checkpoint(found, weights, conventions, words.tokenizers), folder=source)


def _state(path: Path) -> dict[str, Any]:
    tree = read_torch(path, frozenset())
    state = tree.get("model_state") if isinstance(tree, dict) else None
    if not isinstance(state, dict):
        raise CheckpointError(path, ["it is no checkpoint of JoeyNMT: it has no model_state"])
    return state


def _reader(model: TorchModel, embeddings: Embeddings) -> JoeyNMTRecurrent | JoeyNMTTransformer:
    """Return the reader for the type of the encoder. Raises CheckpointError."""
    encoder, decoder = model.options.section("encoder"), model.options.section("decoder")
    kind = encoder.word("type", "recurrent")
    encoder.only("type", *READERS)
    decoder.only("type", kind)
    model.check()
    return READERS[kind](model, embeddings)


def _generation(testing: Options) -> dict[str, Any]:
    """Return the beam width and the longest output that the model was tested with."""
    found: dict[str, Any] = {}
    if testing.integer("beam_size", 1) > 1:
        found["num_beams"] = testing.integer("beam_size")
    longest = testing.values.get("max_output_length")
    if isinstance(longest, int) and longest > 0:
        found["max_new_tokens"] = longest
    return found


class Words:
    """The vocabularies of both sides, as tokenizers, and the ids of special tokens."""

    def __init__(self, model: TorchModel, data: Options, embeddings: Embeddings) -> None:
        self._model, self._data = model, data
        self._names = self._special_names()
        sizes = {"src": embeddings.source_words, "trg": embeddings.target_words}
        lists = {side: self._read(side, size) for side, size in sizes.items()}
        model.check()
        self.tokenizers = model.tokenizers(
            {SIDES[side]: words for side, words in lists.items()},
            list(self._names.values()),
            self._names["unk"],
        )
        ids = {word: token_id for token_id, word in enumerate(lists["trg"])}
        missing = [name for name in self._names.values() if lists["trg"] and name not in ids]
        model.problems += [f"the target's words lack {name}" for name in missing]
        self.ids = {kind: ids.get(name, 0) for kind, name in self._names.items()}
        self.values = {
            "vocab_size": embeddings.target_words,
            "source_vocab_size": None if embeddings.are_tied else embeddings.source_words,
            "tied_embeddings": embeddings.are_tied,
            **language_options(
                [self._language(side) for side in SIDES],
                *(self.ids[kind] for kind in ("pad", "bos", "eos")),
            ),
        }

    def _special_names(self) -> dict[str, str]:
        special = self._data.section("special_symbols")
        return {kind: special.word(f"{kind}_token", name) for kind, name in SPECIAL.items()}

    def _language(self, side: str) -> str:
        older = self._data.word(side, UNKNOWN_LANGUAGE) if not self._is_section(side) else ""
        return older or self._data.section(side).word("lang", UNKNOWN_LANGUAGE)

    @property
    def longest_source(self) -> Any:
        """Return the length above which sentences were left out of the training: of all sides in
        version 1.
        """
        if self._is_section("src"):
            return self._data.section("src").values.get("max_length")
        return self._data.values.get("max_sent_length")

    def _is_section(self, side: str) -> bool:
        return isinstance(self._data.values.get(side), dict)

    def _read(self, side: str, expected: int) -> list[str]:
        """Return the words of a side in the order of their ids."""
        options = self._data.section(side) if self._is_section(side) else self._data
        options.only("level", "word", "bpe")
        for name in ("lowercase", "normalize"):
            options.only(name, False)
        options.section("tokenizer_cfg").only("pretokenizer", "none")
        path = self._model.path.parent / f"{side}_vocab.txt"
        return self._model.read_words(path, _words_of, expected)


def _words_of(path: Path) -> list[str]:
    """Return the lines of a file, which may end with a line break."""
    words = read_text(path).split("\n")
    return words[:-1] if words[-1] == "" else words
