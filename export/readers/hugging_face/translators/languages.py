"""Reads the languages of translation models from their tokenizers and configurations.

Tokens that name a language stand before or after the source, or begin the target; which, each
family says (see `models.conventions`).
"""

import re
from collections.abc import Callable, Iterable, Mapping

from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.tokenizers import token_ids
from models.conventions import LanguageIds
from models.storage.checkpoint import UNKNOWN_LANGUAGE

NLLB = r"([a-z]{3}_[A-Z][a-z]{3})"  # eng_Latn
M2M = r"__([a-z]{2,3})__"
MBART = r"([a-z]{2}_[A-Z]{2})"  # en_XX
MARIAN = r">>(\S+)<<"


def language_tokens(folder: Folder, pattern: str) -> dict[str, int]:
    """Find the ids of all tokens that match as a whole, by the code in their first group."""
    if folder.tokenizers is None:
        return {}
    known = token_ids(folder.tokenizers.source)
    vocab_size = folder.config.integer("vocab_size")
    return {
        match[1]: token_id
        for token, token_id in sorted(known.items(), key=lambda item: item[1])
        if token_id < vocab_size and (match := re.fullmatch(pattern, token))
    }


def only_token(tokens: Mapping[str, int], token_id: int | None) -> dict[str, int]:
    """Find the language that a model always begins with; all of them if that is none."""
    found = {code: each for code, each in tokens.items() if each == token_id}
    return found or dict(tokens)


def by_language(
    tokens: Mapping[str, int], ids: Callable[[int], LanguageIds]
) -> dict[str, LanguageIds]:
    return {code: ids(token_id) for code, token_id in tokens.items()}


def codes(languages: Iterable[str]) -> list[str]:
    return list(languages) or [UNKNOWN_LANGUAGE]
