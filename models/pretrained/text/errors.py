"""What can be wrong with the tokenizer of a foreign model."""

from collections.abc import Iterable


class TokenizerError(Exception):
    """Not to be converted; `problems` lists everything found wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def check_names(names: Iterable[str]) -> None:
    """Raises TokenizerError for a name that is no Unicode text, as JSON and pickles may hold."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise TokenizerError([f"the token {name!r} is no text"]) from None
