"""Refuses texts that are too long, not plain Unicode, or that a tokenizer fails at."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from serving.errors import RequestError, TooLarge, Untokenizable


@contextmanager
def tokenizing(field: str) -> Iterator[None]:
    """Blame this field for a text, read inside, that the tokenizer fails at."""
    try:
        yield
    except Untokenizable as error:
        raise Untokenizable(field, error.value, error.message) from None


def check_text(field: str, text: str, max_characters: int | None = None) -> None:
    """Raise RequestError if `text` is too long or is not plain Unicode text.

    max_characters: None is no limit.
    """
    if max_characters is not None and len(text) > max_characters:
        message = f"must be at most {max_characters} characters, this has {len(text)}"
        raise TooLarge(field, text, message)
    if "\0" in text:
        raise RequestError(field, text, "must not contain NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"must be valid Unicode, character {error.start} is half of a surrogate pair"
        raise RequestError(field, text, message) from None


def check_texts(field: str, texts: Iterable[str], max_characters: int) -> None:
    """Raise RequestError if one of `texts` is refused, or all together are too long."""
    num_characters = 0
    for text in texts:
        check_text(field, text, max_characters)
        num_characters += len(text)
    if num_characters > max_characters:
        message = f"must be at most {max_characters} characters in all"
        raise TooLarge(field, f"{num_characters} characters", message)
