"""The licence and the origin are found in cards of all who write them."""

import pytest

from export.downloads import CATALOGUE
from export.readers.common.checkpoint_files import write_card
from serving.bundle.model_card import find_licence, find_origin

TRAINED = """# A Transformer

Words.

## Training

`attendant train models/recipes/tiny.toml`: 100 steps of up to
4,096 tokens in 2 minutes.

## Licence

The weights come with the project under Apache-2.0. The texts keep
their licences.
"""
ENTRY = CATALOGUE["bergamot-en-pt"]


@pytest.mark.parametrize(
    ("card", "licence", "origin"),
    [
        ("", None, None),
        ("# A model\n\nIt translates.\n", None, None),
        (
            TRAINED,
            "The weights come with the project under Apache-2.0",
            "attendant train models/recipes/tiny.toml",
        ),
        (
            write_card(
                "x", "Imported from the Hugging Face folder `me/x`.", "Licence: mit"
            ).decode(),
            "mit",
            "Hugging Face folder me/x",
        ),
        (
            write_card("x", "A Marian model, read from:", "`model.npz`: 9 bytes").decode()
            + ENTRY.card,
            ENTRY.licence,
            f"{ENTRY.title}, from the Python package {ENTRY.packages}, checked by SHA-256",
        ),
    ],
    ids=["empty", "silent", "trained", "imported", "pulled"],
)
def test_what_a_card_says(card: str, licence: str | None, origin: str | None) -> None:
    assert find_licence(card) == licence
    assert find_origin(card) == origin
