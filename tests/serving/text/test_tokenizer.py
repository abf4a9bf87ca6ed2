"""Text and ids: nothing is lost, nothing in a text is special, a stream is the whole text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import BundleError, RequestError
from serving.text.checks import check_text
from serving.text.tokenizer import Detokenizer, Tokenizer
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

TEXT = st.text(st.characters(codec="utf-8"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    texts = ("a black dog in the snow", "un chien noir dans la neige", "été à Noël, 😀😀")
    return Tokenizer(write_byte_tokenizer(path, texts, vocab_size=300))


@given(text=TEXT)
def test_every_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_special_token_in_a_text_is_plain_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<s>dog</s><pad>")

    assert not {0, 1, 2} & {*ids}
    assert tokenizer.decode(ids) == "<s>dog</s><pad>"


def test_special_tokens_have_no_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([1, *tokenizer.encode("dog"), 2, 0]) == "dog"


@given(ids=st.lists(st.integers(0, 299)))
def test_streamed_is_whole(tokenizer: Tokenizer, ids: list[int]) -> None:
    ids = [token_id for token_id in ids if token_id < tokenizer.vocab_size]
    detokenizer = Detokenizer(tokenizer)

    pieces = [detokenizer.push(token_id) for token_id in ids] + [detokenizer.finish()]

    assert "".join(pieces) == tokenizer.decode(ids)


def test_a_character_is_streamed_whole(tokenizer: Tokenizer) -> None:
    ids = [3 + index for index in range(256)]  # one token a byte
    by_byte = {tokenizer.token_bytes(token_id): token_id for token_id in ids}
    detokenizer = Detokenizer(tokenizer)

    pieces = [detokenizer.push(by_byte[bytes([byte])]) for byte in "é€😀".encode()]

    assert [piece for piece in pieces if piece] == ["é", "€", "😀"]


def test_a_file_that_is_no_tokenizer_is_a_bundle_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")

    with pytest.raises(BundleError, match="not a tokenizer"):
        Tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("half \ud83d", "character 5 is half of a surrogate pair"),
        ("nul \0", "NUL"),
        ("x" * 11, "at most 10 characters, this has 11"),
    ],
)
def test_text_that_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        check_text("q", text, max_characters=10)
    assert caught.value.field == "q"
