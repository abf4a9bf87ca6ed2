"""docs/training.md has every key of a training configuration, with its default."""

import json
import re
from typing import get_args

import pytest
from pydantic_core import PydanticUndefined

from models.data.augmenting import Kind
from models.training.config import SECTIONS, RecipeSection
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
PARTS = re.findall(r"\| key \| default \| meaning \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE)


def default_of(kind: type[RecipeSection], name: str) -> str:
    default = kind.model_fields[name].get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    return "none" if default is None else f"`{json.dumps(default)}`"


@pytest.mark.parametrize(("place", "rows"), [*zip(SECTIONS, PARTS, strict=True)])
def test_a_table_has_all_keys_and_defaults(place: tuple[str, ...], rows: str) -> None:
    kind = SECTIONS[place]
    found = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", rows, re.MULTILINE))
    sections = {"model", "data", "card", "optimizer", "run"} if not place else set()
    assert found == {
        name: default_of(kind, name) for name in kind.model_fields if name not in sections
    }


def test_the_page_has_all_kinds_of_made_pairs() -> None:
    [row] = re.findall(r"\| `augment` .*", PAGE)
    assert {*re.findall(r"`(\w+)`", row)} == {"augment", *get_args(Kind)}
