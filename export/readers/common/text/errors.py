"""Tells what can be wrong with the tokenizer of a foreign model."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class TokenizerError(Exception):
    """Not to be converted; `problems` lists everything found wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@contextmanager
def using_library(subject: str) -> Iterator[None]:
    """Inside, what the tokenizers' library raises becomes TokenizerError: bare Exception, or a
    panic, which is no Exception.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise TokenizerError([f"{subject}: {error}"]) from None


def check_names(names: Iterable[str]) -> None:
    """Raises TokenizerError for a name that is no Unicode text, as JSON and pickles may hold."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise TokenizerError([f"the token {name!r} is no text"]) from None
