"""An accelerator stands before the word that came of its own; names keep their signs."""

import pytest

from serving.text.markup.accelerators import with_accelerator_at_word
from serving.text.markup.tokens import Role, text_tokens
from tests.serving.text.markup.fake_model import by_table, layout, translate


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("&Open dogs", "&Ouvre chiens"),
        ("Open &dogs", "Ouvre &chiens"),
        ("_Open dogs", "_Ouvre chiens"),
        ("Open _dogs", "Ouvre _chiens"),
        ("~Open dogs", "~Ouvre chiens"),
        ("O&pen dogs", "&Ouvre chiens"),
        ("Ope&n dogs", "&Ouvre chiens"),
    ],
)
def test_accelerators_in_texts(text: str, translation: str) -> None:
    words = {"Open": "Ouvre", "dogs": "chiens"}
    assert translate(layout(text, protection=True), by_table(words)) == translation


@pytest.mark.parametrize(
    "text",
    [
        *("R&D", "AT&T", "Q&A", "M&Ms", "drag&drop", "rock&roll", "a=1&b=2", "fish & chips"),
        *("user_id", "_id", "__init__", "_get_name", "_x_", "MAX_SIZE", "_name()", "_Open _Save"),
        *("~10 dogs", "~/dogs", "a ~ b", "~dogs/cats"),
    ],
)
def test_names_have_no_accelerator(text: str) -> None:
    tokens = with_accelerator_at_word([*text_tokens(f"The {text} here", False, True)])
    assert [token for token in tokens if token.role is Role.POINT] == []
