"""GGUF files as checkpoints.

The options, translated into Hugging Face's words, go through the reader of their families.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tokenizers import AddedToken, Tokenizer

from export.readers.common.decoders.families import FAMILIES
from export.readers.common.options import Options, unused_notes
from export.readers.common.pieces import (
    Kind,
    Order,
    Piece,
    Pieces,
    Spelling,
    TokenizerError,
    tokenizer_json,
)
from export.readers.common.rope import fit
from export.readers.common.shapes import shapes_of
from export.readers.common.tokenizers import byte_level_bpe
from export.readers.common.toolkits import card_of, checkpoint_files, noted
from export.readers.common.weights import Names, Table, Tensors, read_weights
from export.readers.gguf_container import MAGIC, Container, kept_bits, read_container
from export.readers.gguf_metadata import (
    ARCHITECTURES,
    NAMES,
    ROPE_TABLES,
    WITHOUT_EFFECT,
    Architecture,
    configuration,
    conventions,
    norms_less_one,
    unpermuted,
)
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.checkpoint import Checkpoint, CheckpointError
from models.safetensors import Arrays

SUFFIX = ".gguf"


def looks_like(path: Path) -> bool:
    """Return whether a file is GGUF by its name or its first bytes."""
    if not path.is_file():
        return False
    if path.suffix == SUFFIX:
        return True
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read(path: Path, context_length: int | None = None) -> Checkpoint:
    """context_length: the most tokens that it shall read, if not as many as it could. Raises
    CheckpointError with all that is wrong.
    """
    container = read_container(path)
    problems: list[str] = []
    metadata = Options(path.name, {key: _plain(v) for key, v in container.fields.items()}, problems)
    name = metadata.word("general.architecture")
    if metadata.get("split.count", 1) != 1:
        metadata.refuse("split.count", "is of a model in parts; join them with llama-gguf-split")
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        metadata.refuse("general.architecture", f"is not supported; {known} are")
    if problems:
        raise CheckpointError(path, problems)
    values = configuration(name, metadata, container.tensors, problems)
    notes: list[str] = []
    texts = conventions(metadata, notes)
    tokenizer = from_gguf(container.fields, problems)
    if problems or tokenizer is None:
        raise CheckpointError(path, problems)
    options = Options(path.name, values, problems)
    notes += fit(options, context_length)
    config, weights = _model(container, options, ARCHITECTURES[name])
    files = checkpoint_files(file_card(container), tokenizer)
    checkpoint = Checkpoint(path, config, weights, texts, files, bits=_bits(container))
    return noted(checkpoint, [*notes, *unused_notes(metadata, WITHOUT_EFFECT)])


def _bits(container: Container) -> Literal[4, 8] | None:
    """Return the number of bits of the layers' matrices; embedding tables have 8 or more."""
    layers = [tensor for name, tensor in container.tensors.items() if name.startswith("blk.")]
    return kept_bits([tensor.kind for tensor in layers if len(tensor.shape) == 2])


def _model(container: Container, options: Options, kind: Architecture) -> tuple[AnyConfig, Arrays]:
    """Read it; options in Hugging Face's words go through the reader of their families."""
    problems, family = options.problems, FAMILIES[options.word("model_type")]
    tensors = Tensors(container.stored, problems)
    try:
        config: Any = parse_config(family.configure(options))
    except ModelConfigError as error:
        raise CheckpointError(container.path, [*problems, *error.problems]) from None
    table = Table(_names(kind, config), family.table(options, config).changes, needless=ROPE_TABLES)
    weights = read_weights(shapes_of(config), table, tensors)
    tensors.finish()
    if problems:
        raise CheckpointError(container.path, problems)
    return config, Arrays(weights)


def _names(kind: Architecture, config: Any) -> Names:
    permuted = unpermuted(config.num_heads, config.num_kv_heads) if kind.is_permuted else {}
    norms = norms_less_one() if kind.norms_have_one else {}
    return {**NAMES, **kind.names, **permuted, **norms}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def file_card(container: Container) -> bytes:
    """Write name, kind, licence and types of tensors in Markdown, as far as the file says them."""
    path, fields = container.path, container.fields
    kinds = Counter(tensor.kind.name for tensor in container.tensors.values())
    facts = [
        f"Architecture: {fields.get('general.architecture')}",
        f"Tensors: {', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}",
    ]
    for title, key in (("Author", "organization"), ("Licence", "license"), ("Size", "size_label")):
        if value := fields.get(f"general.{key}"):
            facts.append(f"{title}: {value}")
    size = f"{path.stat().st_size / 1e6:.1f} MB"
    origin = f"Imported from the GGUF file `{path.name}` ({size})."
    return card_of(fields.get("general.name") or path.stem, origin, *facts)


_PREFIX = "tokenizer.ggml."


def from_gguf(fields: Mapping[str, Any], problems: list[str]) -> bytes | None:
    """`tokenizer.json` from a file's metadata by key; None if there are problems."""
    try:
        return _tokenizer(_Fields(fields))
    except TokenizerError as error:
        problems += [f"tokenizer: {problem}" for problem in error.problems]
        return None


class _Fields:
    """The metadata of a tokenizer, with types checked. Raises TokenizerError."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = {
            key.removeprefix(_PREFIX): value
            for key, value in fields.items()
            if key.startswith(_PREFIX)
        }

    @property
    def tokens(self) -> list[str]:
        return self._list("tokens", str)

    @property
    def merges(self) -> list[str]:
        return self._list("merges", str)

    @property
    def kinds(self) -> list[Kind]:
        if "token_type" not in self._fields:
            return [Kind.NORMAL] * len(self.tokens)
        values = self._numbers("token_type")
        if wrong := {*values} - {*Kind}:
            raise TokenizerError([f"there is no token_type {min(wrong):g}"])
        return [Kind(int(value)) for value in values]

    @property
    def scores(self) -> list[float]:
        return [float(value) for value in self._numbers("scores")]

    @property
    def unknown(self) -> str | None:
        """Return the unknown token by the id in the file, or the first token, as llama.cpp does.

        None if a token's kind says which it is.
        """
        token_id = self._fields.get("unknown_token_id", None if Kind.UNKNOWN in self.kinds else 0)
        if token_id is None:
            return None
        if not isinstance(token_id, int) or not 0 <= token_id < len(self.tokens):
            message = f"{_PREFIX}unknown_token_id {token_id!r} is no token's"
            raise TokenizerError([message])
        return self.tokens[token_id]

    def text(self, key: str, default: str | None = None) -> str:
        value = self._fields.get(key, default)
        if not isinstance(value, str):
            raise TokenizerError([f"{_PREFIX}{key} must be a text, this is {value!r}"])
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._fields.get(key, default)
        if not isinstance(value, bool | np.bool_):
            raise TokenizerError([f"{_PREFIX}{key} must be true or false, this is {value!r}"])
        return bool(value)

    def _numbers(self, key: str) -> list[float]:
        """One for each token."""
        try:
            numbers = np.asarray(self._fields[key], np.float64)
        except (KeyError, TypeError, ValueError):
            raise TokenizerError([f"{_PREFIX}{key} must be a list of numbers"]) from None
        if numbers.shape != (len(self.tokens),) or not np.isfinite(numbers).all():
            raise TokenizerError([f"{_PREFIX}{key} must have a number for each token"])
        return numbers.tolist()

    def _list(self, key: str, kind: type) -> list[Any]:
        value = self._fields.get(key)
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise TokenizerError([f"{_PREFIX}{key} must be a list of texts"])
        return value


def _tokenizer(fields: _Fields) -> bytes:
    readers = {"gpt2": _byte_level, "llama": _sentencepiece}
    model = fields.text("model")
    if model not in readers:
        raise TokenizerError([f"{_PREFIX}model {model!r} is not supported"])
    return readers[model](fields)


def _sentencepiece(fields: _Fields) -> bytes:
    kinds = fields.kinds
    rows = zip(fields.tokens, fields.scores, kinds, strict=True)
    spelling = Spelling(adds_space=fields.flag("add_space_prefix", True), trims=False)
    pieces = [Piece(*row) for row in rows]
    source = Pieces(pieces, True, Kind.BYTE in kinds, spelling)
    return tokenizer_json(source, Order(unknown=fields.unknown))


def _byte_level(fields: _Fields) -> bytes:
    tokens = fields.tokens
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        raise TokenizerError(["several tokens have the same name"])
    tokenizer = byte_level_bpe(vocabulary, fields.merges, fields.text("pre", "default"))
    _add(tokenizer, tokens, fields.kinds)
    return tokenizer.to_str().encode()


def _add(tokenizer: Tokenizer, tokens: Sequence[str], kinds: Sequence[Kind]) -> None:
    """Tokens that are found in a text before all others."""
    rows = list(zip(tokens, kinds, strict=True))
    special = [token for token, kind in rows if kind in {Kind.CONTROL, Kind.UNKNOWN, Kind.UNUSED}]
    own = [token for token, kind in rows if kind == Kind.USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in own])
