"""The tables of docs/architectures.md have all architectures, sections and options."""

import re
from pathlib import Path
from typing import get_args

import pytest

from export.bundling.writer import build_model
from models.architectures.registry import ARCHITECTURES, Sections, config_class, sections_of
from models.configs.base import (
    ArchitectureConfig,
    LanguageModelConfig,
    TranslationModelConfig,
)
from serving.bundle.manifest import Precision
from tests.docs.pages import ROOT
from tests.tiny import tiny_checkpoint

PAGE = (ROOT / "docs" / "architectures.md").read_text(encoding="utf-8")
SIZE = re.compile(r"_dim$|^d_model$|_layers$|^num_heads$|^source_vocab_size$")


def families() -> dict[str, list[str]]:
    """Return the cells of each row, by architecture."""
    return {row[3].strip(" `"): row for row in rows_of("system")}


def rows_of(first: str) -> list[list[str]]:
    """Return the rows of the table of families whose first column is headed so."""
    [section] = re.findall(rf"## Families\n.*?(\| {first} .*?)\n\n", PAGE, re.DOTALL)
    return [row.split("|") for row in section.splitlines()][2:]


def test_the_table_of_families_has_all_options() -> None:
    """The table has all options but the sizes, and no others."""
    found = {name: {*re.findall(r"`(\w+)`", row[4])} for name, row in families().items()}
    assert found == {name: own_options(config_class(name)) for name in ARCHITECTURES}


def test_the_table_of_sections_has_all_kinds_and_options() -> None:
    found = {
        (architecture, words(row[1])[0]): {*words(row[3]), *words(row[4])}
        for row in rows_of("section")
        for architecture in words(row[2])
    }
    known = {
        (architecture, name): {*(kinds if len(kinds) > 1 else ()), *options_of(kinds)}
        for architecture in ARCHITECTURES
        for name in config_class(architecture).model_fields
        if (kinds := sections_of(config_class(architecture), name))
    }
    assert found == known


def words(cell: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", cell)


def options_of(kinds: Sections) -> set[str]:
    """Find what can be chosen in a section, beside which of several kinds it is."""
    return {
        name
        for kind in kinds.values()
        for name in kind.model_fields
        if len(kinds) == 1 or name != "kind"
    }


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_the_table_of_families_has_all_kinds_of_state(architecture: str, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(architecture, tmp_path)
    states = build_model(checkpoint, Precision.FP32).states
    assert {state.kind.value for state in states} <= {
        *re.findall(r"\w+", families()[architecture][5])
    }


def own_options(kind: type[ArchitectureConfig]) -> set[str]:
    shared = {*TranslationModelConfig.model_fields, *LanguageModelConfig.model_fields}
    return {
        name
        for name, field in kind.model_fields.items()
        if name not in shared and not SIZE.search(name) and len(get_args(field.annotation)) != 1
    }
