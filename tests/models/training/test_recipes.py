"""Recipes: one may extend another, and those of the zoo share one budget."""

from pathlib import Path

import pytest

from export.zoo.effects import LUONG_PLACES, LUONG_SCORES, recipe_of
from models.architectures.luong.config import LuongConfig
from models.configs.recurrent import Global, LocalM
from models.training.config import TrainingConfig, TrainingConfigError, read_config

MODELS = Path(__file__).parents[3] / "models"
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


def test_a_section_of_another_kind_has_its_own_options(tmp_path: Path) -> None:
    luong = BASE.replace('"bahdanau"', '"luong"')
    near = 'extends = "base.toml"\n[model]\nattention = { kind = "local-m", window = 3 }\n'
    nearer = 'extends = "near.toml"\n[model.attention]\nwindow = 2\n'
    everywhere = 'extends = "near.toml"\n[model.attention]\nkind = "global"\n'
    write(tmp_path, base=luong, near=near, nearer=nearer, everywhere=everywhere)
    actual = [read_config(tmp_path / f"{name}.toml").model for name in ("nearer", "everywhere")]
    assert [getattr(each, "attention", None) for each in actual] == [LocalM(window=2), Global()]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('extends = "nowhere.toml"', "nowhere.toml, which it extends"),
        ('extends = "this.toml"', "extends itself"),
        ('extends = "base.toml"\nspeed = 1', "speed: a configuration has no such key"),
        ('extends = "base.toml"\n[model]\nspeed = 1', "model: speed"),
    ],
)
def test_a_bad_extension_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path, base=BASE, this=text)
    with pytest.raises(TrainingConfigError) as caught:
        read_config(tmp_path / "this.toml")
    assert [each for each in caught.value.problems if problem in each]


@pytest.mark.parametrize(("first", "task"), [("luong", "translate"), ("gru-lm", "generate")])
def test_the_zoo_has_one_budget(first: str, task: str) -> None:
    """Seeds aside, and but for what says otherwise by its name."""
    configs = {path.stem: read_config(path) for path in ZOO}
    runs = {name: c.run.model_copy(update={"seed": 1}) for name, c in configs.items()}
    alike = [name for name, config in configs.items() if config.model.task == task]
    others = [name for name in alike if runs[name] != runs[first]]
    assert others == [name for name in alike if name.endswith(("-long", "-steps"))]


def test_luongs_scores_and_places_are_all_there() -> None:
    for score in LUONG_SCORES:
        for place in LUONG_PLACES:
            config = read_config(MODELS / "zoo" / f"{recipe_of(score, place)}.toml").model
            assert isinstance(config, LuongConfig)
            assert (config.score, config.attention.kind) == (score, place)


@pytest.mark.parametrize("path", [path for path in ZOO if "-seed-" in path.stem])
def test_a_further_seed_is_all_that_differs(path: Path) -> None:
    name, _, seed = path.stem.partition("-seed-")
    first, other = read_config(path.with_name(f"{name}.toml")), read_config(path)
    assert other.run.seed == int(seed) != first.run.seed
    run = other.run.model_copy(update={"seed": first.run.seed})
    assert other.model_copy(update={"name": first.name, "run": run}) == first


WRONG_KEYS = [
    ('colour = "red"\n', "colour: a configuration has no such key; its keys are name, model, data"),
    ("max_steps = 3\n", "max_steps: a configuration has no such key; there is run.max_steps"),
    ('[data]\ntrian = ["a"]\n', "data.trian: [data] has no such key; did you mean train?"),
    ('[data]\ntrain = ["a"]\nwarmup = 1\n', "data.warmup: [data] has no such key; there is opt"),
    ('[data]\ntrain = ["a"]\nx = 1\n', "data.x: [data] has no such key; its keys are train, dev"),
    ("[data.ending]\nshare = 0.1\nlength = 1\n", "data.ending.length: [data.ending] has no such"),
    ('[optimizer]\nname = "sgd"\n', "optimizer.name: input should be 'adamw' or 'muon' (got \"sg"),
    ("[run]\nseeed = 1\n", "run.seeed: [run] has no such key; did you mean seed?"),
    ("[run]\nmax-steps = 1\n", "run.max-steps: [run] has no such key; did you mean max_steps?"),
    ("[run]\nmax_minutes = 0\n", "run.max_minutes: input should be greater than 0 (got 0)"),
    ('[data.augment]\nnoises = 1\n[data]\ntrain = ["a"]\n', "'noise'"),
    ('[card]\nlicense = ""\n', "card.license: [card] has no such key; did you mean licence?"),
    ("[data]\n", "data.train: is required"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_KEYS)
def test_what_is_unknown_is_told_with_what_there_is(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(TrainingConfigError) as caught:
        read_config(path)
    assert any(message in problem for problem in caught.value.problems), caught.value.problems
