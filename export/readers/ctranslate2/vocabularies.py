"""Vocabularies of CTranslate2, a list of tokens in JSON or a line for each, and tokenizers that lie
beside them.
"""

import json
from collections.abc import Sequence

from tokenizers import Tokenizer

from export.readers.common.pieces import TokenizerError, using_library
from export.readers.ctranslate2.files import ModelFiles, read_content
from models.checkpoint import TOKENIZER_FILE

JOINER = "\uffed"  # of OpenNMT's Tokenizer


def read_tokens(
    files: ModelFiles, stem: str, num_tokens: int, unknown: str, problems: list[str]
) -> list[str]:
    """Return a vocabulary in the order of its ids; an empty one, and a problem, if it does not fit.

    stem: the name of its file without .json or .txt. num_tokens: the rows of the model's table.
    unknown: the token that is added where only it is missing.
    """
    name = f"{stem}.json" if f"{stem}.json" in files else f"{stem}.txt"
    parse = _parse_json if name.endswith(".json") else _parse_lines
    tokens = read_content(files, name, parse, problems)
    if tokens is None:
        return []
    if unknown not in tokens and len(tokens) == num_tokens - 1:
        tokens.append(unknown)
    if len(tokens) != num_tokens:
        problems.append(f"{name} has {len(tokens)} tokens, the model's table has {num_tokens}")
        return []
    if any(JOINER in token for token in tokens):
        problems.append(
            f"{name} is of OpenNMT's Tokenizer, whose joiners ({JOINER}) are not supported"
        )
        return []
    return _name_duplicates(tokens)


def _parse_json(data: bytes) -> list[str]:
    """Raises ValueError."""
    tokens = json.loads(data)
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ValueError("it is no list of tokens")
    return tokens


def _parse_lines(data: bytes) -> list[str]:
    """A carriage return belongs to a token, unless every line ends with one. Raises ValueError."""
    lines = data.decode("utf-8").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if all(line.endswith("\r") for line in lines):
        return [line[:-1] for line in lines]
    return lines


def _name_duplicates(tokens: Sequence[str]) -> list[str]:
    """Give tokens that are there twice other names the second time: no text becomes these."""
    names: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        names.setdefault(token, token_id)
    return [
        token if names[token] == token_id else f"<{token_id}: {token}>"
        for token_id, token in enumerate(tokens)
    ]


def read_tokenizer(
    files: ModelFiles, sides: Sequence[Sequence[str]], problems: list[str]
) -> bytes | None:
    """Return `tokenizer.json` of a folder; None, and a problem, if it cannot be read, or gives
    tokens of one of the vocabularies other ids.
    """
    content = read_content(files, TOKENIZER_FILE, bytes, problems)
    if content is None:
        return None
    try:
        with using_library(f"{TOKENIZER_FILE} cannot be read"):
            ids: dict[str, int] = Tokenizer.from_buffer(content).get_vocab(True)
    except TokenizerError as error:
        problems += error.problems
        return None
    for tokens in sides:
        model_ids = {token: token_id for token_id, token in enumerate(tokens)}
        wrong = [
            name for name, token_id in ids.items() if model_ids.get(name, token_id) != token_id
        ]
        if wrong:
            problems.append(f"{TOKENIZER_FILE} has another id for {wrong[0]!r} than the vocabulary")
            return None
    return content


def read_added_tokens(
    tokenizer: bytes, problems: list[str]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens that a `tokenizer.json` puts before and behind a text."""
    try:
        with using_library(f"{TOKENIZER_FILE} cannot be used"):
            encoding = Tokenizer.from_buffer(tokenizer).encode("a")
    except TokenizerError as error:
        problems += error.problems
        return (), ()
    is_added = [*map(bool, encoding.special_tokens_mask)]
    if all(is_added):
        return (), ()
    first, last = is_added.index(False), is_added[::-1].index(False)
    return (*encoding.ids[:first],), (*encoding.ids[len(is_added) - last :],)
