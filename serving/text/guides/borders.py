"""Finds where words begin and end among tokens, to know a term from a part of a longer word."""

from collections.abc import Callable
from functools import cached_property

from serving.text.tokenizer import Tokenizer

_OPENING = tuple("'’‘-–—/([{«“\"‹")  # words follow these without a space, as in "l'eau"
_PART_OF_CHARACTER = "\ufffd"


class WordBorders:
    """Sorts the tokens of one tokenizer; each set is made when it is first asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def inner_ids(self) -> frozenset[int]:
        """Return the tokens that go on with a word; so may a part of a character: most are letters.
        None if a word's last token says that it is the last.
        """
        if self._tokenizer.table.drops_last_space:
            return frozenset()
        return self._ids(lambda text: text[0].isalnum() or text[0] in {"_", _PART_OF_CHARACTER})

    @cached_property
    def opening_ids(self) -> frozenset[int]:
        """Return the tokens after which a word may begin without a space."""
        return self._ids(lambda text: text[-1].isspace() or text.endswith(_OPENING))

    def _ids(self, belongs: Callable[[str], bool]) -> frozenset[int]:
        texts = (text.decode(errors="replace") for text in self._tokenizer.table.token_bytes)
        return frozenset(i for i, text in enumerate(texts) if text and belongs(text))
