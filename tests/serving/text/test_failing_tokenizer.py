"""A text at which the tokenizers' library panics is refused by name, and the next one is served."""

from collections.abc import Callable

import pytest

from serving.errors import RequestError, Untokenizable
from serving.text.constraints.grammars import Grammars
from serving.text.tokenizer import Tokenizer
from tests.serving.text.tokenizers_for_tests import FAILS_AT, write_failing_tokenizer

STOP = 2


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_failing_tokenizer(tmp_path_factory.mktemp("t") / "tokenizer.json"))


@pytest.mark.parametrize(
    "encode",
    [
        Tokenizer.encode,
        Tokenizer.encode_inside,
        lambda tokenizer, text: tokenizer.encode(text, parse_special=True),
        lambda tokenizer, text: tokenizer.encode_batch([text]),
        lambda tokenizer, text: tokenizer.encode_batch(["fine", text]),
    ],
)
def test_a_panic_is_an_error_of_the_text(
    tokenizer: Tokenizer, encode: Callable[[Tokenizer, str], object]
) -> None:
    with pytest.raises(Untokenizable, match="retry-limit-in-match over") as raised:
        encode(tokenizer, FAILS_AT)
    assert isinstance(raised.value, RequestError)
    assert raised.value.field == "text"
    assert tokenizer.decode(tokenizer.encode("fine")) == "fine"


def test_what_cannot_be_tokenized_cannot_be_written(tokenizer: Tokenizer) -> None:
    assert tokenizer.can_write("fine")
    assert not tokenizer.can_write(FAILS_AT)


def test_a_grammar_may_force_it_all_the_same(tokenizer: Tokenizer) -> None:
    Grammars(tokenizer, (STOP,)).choices([FAILS_AT])
