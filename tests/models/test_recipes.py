"""Recipes: one may extend another, and those of the zoo share one budget."""

from pathlib import Path

import pytest

from models.training.config import ConfigError, TrainingConfig, read_config

MODELS = Path(__file__).parent.parent.parent / "models"
RECIPES = sorted([*MODELS.glob("recipes/*.toml"), *MODELS.glob("zoo/[!_]*.toml")])
ZOO = [path for path in RECIPES if path.parent.name == "zoo"]
BASE = """
name = "base"
[model]
architecture = "bahdanau"
vocab_size = 300
hidden_dim = 16
[data]
train = ["train.tsv"]
[run]
max_minutes = 10
"""


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_named_like_its_file(path: Path) -> None:
    assert read_config(path).name == path.stem


def test_what_extends_says_only_what_is_different(tmp_path: Path) -> None:
    variant = 'extends = "base.toml"\nname = "wide"\n[model]\nhidden_dim = 32\n'
    longer = 'extends = "wide.toml"\nname = "long"\n[run]\nmax_minutes = 20\n'
    write(tmp_path, base=BASE, wide=variant, long=longer)
    base, wide, long = (read_config(tmp_path / f"{name}.toml") for name in ("base", "wide", "long"))
    changed = base.model_dump() | {"name": "long", "model": base.model.model_dump()}
    changed["model"]["hidden_dim"] = 32
    changed["run"] |= {"max_minutes": 20.0}
    assert long == TrainingConfig.model_validate(changed)
    assert wide.run == base.run


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('extends = "nowhere.toml"', "nowhere.toml, which it extends"),
        ('extends = "this.toml"', "extends itself"),
        ('extends = "base.toml"\nspeed = 1', "speed: Extra inputs"),
        ('extends = "base.toml"\n[model]\nspeed = 1', "model: speed"),
    ],
)
def test_a_bad_extension_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path, base=BASE, this=text)
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path / "this.toml")
    assert [each for each in caught.value.problems if problem in each]


def test_the_zoo_has_one_budget() -> None:
    runs = {path.stem: read_config(path).run for path in ZOO}
    budget = runs["transformer-tiny"]
    others = [name for name, run in runs.items() if run != budget]
    assert others == [name for name in runs if name.endswith("-long")]
