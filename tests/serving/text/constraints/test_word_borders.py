"""Word borders: what may stand before a word and what may not follow it."""

import pytest

from serving.text.constraints.term_insertion import WordBorders
from serving.text.tokenizer import Tokenizer
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

TEXTS = (" chien", " été", "été", " (")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    return Tokenizer(write_byte_tokenizer(folder / "tokenizer.json", TEXTS * 9, 300))


@pytest.mark.parametrize(
    ("token", "opens", "continues"),
    [
        ("a", False, True),
        ("9", False, True),
        ("_", False, True),
        ("été", False, True),
        (" été", False, False),
        (" ", True, False),
        ("'", True, False),
        (" (", True, False),
        ("-", True, False),
        (".", False, False),
        ("!", False, False),
    ],
)
def test_tokens_by_their_ends(
    tokenizer: Tokenizer, token: str, opens: bool, continues: bool
) -> None:
    borders = WordBorders(tokenizer)
    [token_id] = tokenizer.encode(token)

    assert (token_id in borders.opening_ids) == opens
    assert (token_id in borders.inner_ids) == continues


def test_parts_of_characters_continue_words_and_special_tokens_do_nothing(
    tokenizer: Tokenizer,
) -> None:
    borders = WordBorders(tokenizer)

    assert {*tokenizer.encode("€")} <= borders.inner_ids
    assert not {0, 1, 2} & (borders.inner_ids | borders.opening_ids)
