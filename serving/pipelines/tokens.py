"""Shows the tokens of a model: how it reads a text, and what text its tokens are.

Plain values: they cross to another process when another worker group serves the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.errors import RequestError
from serving.parameters import TokenIds
from serving.text.chat.template import Chat
from serving.text.tokenizer import Tokenizer
from serving.text.vocabulary.shown_tokens import spelt


@dataclass(frozen=True, slots=True)
class TokenizeJob:
    """Asks for the tokens of a text, or of a chat as its template writes it.

    adds_special: with what the bundle puts around a text; a chat has it already.
    """

    prompt: str | Chat
    adds_special: bool = True


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """Holds the ids of tokens, and how each is written."""

    token_ids: TokenIds
    written: tuple[str, ...]


def tokenized(tokenizer: Tokenizer, token_ids: Sequence[int]) -> TokenizedText:
    special = tokenizer.special_tokens
    written = (special.get(each) or spelt(tokenizer.shown(each)) for each in token_ids)
    return TokenizedText(tuple(token_ids), tuple(written))


def detokenized(tokenizer: Tokenizer, token_ids: Sequence[int]) -> str:
    """Return the text of tokens; special ones have none. Raises RequestError for ids that are none
    of the model's.
    """
    for token_id in token_ids:
        if not 0 <= token_id < tokenizer.vocab_size:
            message = f"token ids must be between 0 and {tokenizer.vocab_size - 1}"
            raise RequestError("tokens", token_id, message)
    return tokenizer.decode(token_ids)
