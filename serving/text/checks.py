"""Refuses text that no model should see, before anything is done with it."""

from serving.errors import RequestError, TooLarge


def check_text(field: str, text: str, max_characters: int) -> None:
    """Raise RequestError if `text` is too long or is not plain Unicode text."""
    if len(text) > max_characters:
        message = f"must be at most {max_characters} characters, this has {len(text)}"
        raise TooLarge(field, text, message)
    if "\0" in text:
        raise RequestError(field, text, "must not contain NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"must be valid Unicode, character {error.start} is half of a surrogate pair"
        raise RequestError(field, text, message) from None
