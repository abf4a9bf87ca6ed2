"""Writes token ids as text, one at a time: the text of a stream never has to be taken back."""

import codecs

from serving.text.tokenizer import Tokenizer
from serving.text.vocabulary.token_table import Writer


class Detokenizer:
    """Holds back the bytes of an unfinished character until the rest of it comes, and a space that
    the text may end with.

    The pieces joined are `Tokenizer.decode` of all ids.

    begins_text: no other text goes before it.
    """

    def __init__(self, tokenizer: Tokenizer, begins_text: bool = True) -> None:
        self._writer = Writer(tokenizer.table, begins_text)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Return the text that became certain with this token; often empty within a character."""
        return self._decoder.decode(self._writer.push(token_id))

    def finish(self) -> str:
        """Return what is left when no more tokens come: U+FFFD for an unfinished character."""
        return self._decoder.decode(b"", final=True)
