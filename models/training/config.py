"""The configuration file of a training run (TOML). All problems are reported together.

With `extends = "other.toml"` a file has only the differences from a file beside it.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from models.architectures.recurrent_lm.config import RecurrentLMConfig
from models.architectures.registry import ModelConfig, ModelConfigError
from models.architectures.vision_transformer.config import VisionTransformerConfig
from models.architectures.whisper.config import WhisperConfig
from models.configs.base import ArchitectureConfig, MaskedWordHead
from models.configs.recurrent import RecurrentLanguageModelConfig
from models.data.augmenting import Kind


class RecipeSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EndingConfig(RecipeSection):
    """The last `share` of a run, in which origins are repeated as `repeats` says; others are left
    out.
    """

    share: float = Field(gt=0, lt=1)
    repeats: dict[str, float]


class DataConfig(RecipeSection):
    """Says where the text is, relative to the data folder.

    `dev` and `test` are parallel files. Without `dev`, `held_out` of the training pairs is held out
    to validate, and as much to test if there is no `test` either; prose holds out that share of its
    documents.
    `repeats` says how often an epoch shows each origin (first column), 1 where it is not named.
    `augment` says how many pairs of each kind are made (`models.data.making`), as an origin.
    `distilled` is a file of lines of source and a teacher's translation, which are added as well
    (Kim and Rush 2016); their origin is the file's name. `bpe_dropout` cuts words of sources in
    other ways.

    `carried_window` cuts prose into windows of so many tokens that follow each other, and a
    recurrent language model goes on with the state that it had at the end of the last one, without
    its gradient (truncated back-propagation through time). Else windows are as long as the model's
    context, in any order, and each begins with nothing.

    `masked_share` is the part of the words that a model of masked words guesses while it learns;
    more than BERT's 0.15, the default, teach faster (Wettig et al. 2023). Held-out texts have 0.15.
    """

    train: tuple[str, ...]
    dev: str | None = None
    test: str | None = None
    repeats: dict[str, float] = Field(default_factory=dict)
    held_out: float = Field(default=0.02, gt=0, lt=0.5)
    augment: dict[Kind, NonNegativeInt] = Field(default_factory=dict)
    distilled: str | None = None
    bpe_dropout: float = Field(default=0.0, ge=0, lt=1)
    carried_window: PositiveInt | None = None
    masked_share: float | None = Field(default=None, gt=0, lt=1)
    ending: EndingConfig | None = None


class OptimizerConfig(RecipeSection):
    """`muon` (Jordan et al. 2024) is for the matrices of the layers; everything else uses AdamW.

    warmup: the share of a run in which the learning rate rises.
    """

    name: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    betas: tuple[float, float] = (0.9, 0.98)
    warmup: float = Field(default=0.03, ge=0, lt=1)
    clip_norm: float = Field(default=1.0, gt=0)


class RunConfig(RecipeSection):
    """Says how long, in which precision, how often to look. The nearer of the two limits ends it.

    `clock` says what minutes are: of the day, or of the process's own work on all its threads,
    which other work on the machine does not shorten. `precision` bf16 is fp32 on machines that
    have no instructions for it.

    Weights are looked at `validations` times, evenly over the run, as averages over about the last
    `averaged_share` of all steps so far. In a run that ends by its minutes, a validation is left
    out where all of them together would take more than a tenth of the time. What is best, by loss
    or by BLEU of `bleu_sentences` (of `bleu_origins`, if any are named), is kept. After `patience`
    times without a lower loss the run ends.
    """

    tokens_per_batch: int = Field(default=4096, gt=0)
    max_steps: int = Field(default=100_000, gt=0)
    max_minutes: float = Field(default=120.0, gt=0)
    clock: Literal["wall", "processor"] = "wall"
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    precision: Literal["fp32", "bf16"] = "bf16"
    validations: int = Field(default=20, gt=0)
    bleu_sentences: int = Field(default=200, ge=0)
    bleu_origins: list[str] = Field(default_factory=list)
    patience: int = Field(default=10, gt=0)
    choose_by: Literal["loss", "bleu"] = "loss"
    averaged_share: float = Field(default=0.05, ge=0, lt=1)
    seed: int = 1


class CardConfig(RecipeSection):
    """The parts of the model card that cannot be computed, in Markdown."""

    title: str = ""
    about: str = ""
    data: str = ""
    training: str = ""
    licence: str = ""


class TrainingConfig(RecipeSection):
    """The whole file."""

    name: str
    model: ModelConfig
    data: DataConfig
    card: CardConfig = CardConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    run: RunConfig = RunConfig()

    @model_validator(mode="after")
    def _learns_from_texts(self) -> Self:
        name = self.model.architecture
        if isinstance(self.model, VisionTransformerConfig):
            raise ValueError(f"model: {name} reads pictures, and training is on texts only")
        if isinstance(self.model, WhisperConfig):
            raise ValueError(f"model: {name} reads sound, and training is on texts only")
        return self

    @model_validator(mode="after")
    def _can_carry(self) -> Self:
        if self.data.carried_window is not None and not carries_state(self.model):
            raise ValueError(
                f"data.carried_window: {self.model.architecture} keeps more of a text the longer "
                "it is; only recurrent language models whose state stays as large can carry it"
            )
        return self

    @model_validator(mode="after")
    def _masks_words(self) -> Self:
        head = getattr(self.model, "head", None)
        if self.data.masked_share is not None and not isinstance(head, MaskedWordHead):
            raise ValueError("data.masked_share: only a model of masked words has it")
        return self

    def with_minutes(self, minutes: float) -> "TrainingConfig":
        """Return the configuration with another time limit, in wall-clock minutes."""
        run = self.run.model_copy(update={"max_minutes": minutes, "clock": "wall"})
        return self.model_copy(update={"run": run})


def carries_state(model: ArchitectureConfig) -> bool:
    """Return whether a model's state has the same size however much it has read."""
    attends = isinstance(model, RecurrentLMConfig) and model.attention is not None
    return isinstance(model, RecurrentLanguageModelConfig) and not attends


class TrainingConfigError(Exception):
    """A configuration cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__(f"{path}: " + "; ".join(problems))
        self.path = path
        self.problems = problems


def read_config(path: str | Path) -> TrainingConfig:
    """Read and check a TOML file. Raises TrainingConfigError."""
    path = Path(path)
    try:
        return TrainingConfig.model_validate(_read(path))
    except FileNotFoundError as error:
        missing = "" if error.filename == str(path) else f" as {error.filename}, which it extends"
        raise TrainingConfigError(path, [f"there is no such file{missing}"]) from None
    except RecursionError:
        raise TrainingConfigError(path, ["extends: it extends itself"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TrainingConfigError(path, [f"not TOML: {error}"]) from None
    except ValidationError as error:
        problems = [problem for detail in error.errors() for problem in _problems(detail)]
        raise TrainingConfigError(path, problems) from None


def _read(path: Path) -> dict[str, Any]:
    """Return the values of a file, merged over those of the file that it extends."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    base = values.pop("extends", None)
    return values if base is None else _merge_sections(_read(path.parent / str(base)), values)


def _merge_sections(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `changes` merged over `values`, key by key in every section. A section of another kind
    replaces the old one.
    """
    merged = base | changes
    for name in base.keys() & changes.keys():
        if isinstance(base[name], dict) and isinstance(changes[name], dict):
            old, new = base[name], changes[name]
            is_other = "kind" in old and new.get("kind", old["kind"]) != old["kind"]
            merged[name] = new if is_other else _merge_sections(old, new)
    return merged


def _problems(error: ErrorDetails) -> Iterator[str]:
    place = ".".join(map(str, error["loc"]))
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ModelConfigError):
        yield from (f"{place}: {problem}" for problem in cause.problems)
    elif not place:
        yield str(cause)
    elif error["type"] == "extra_forbidden":
        yield f"{place}: {_describe_unknown_key(error['loc'])}"
    elif error["type"] == "missing":
        yield f"{place}: is required"
    else:
        message = error["msg"][:1].lower() + error["msg"][1:].replace("tuple", "list")
        yield f"{place}: {message} (got {json.dumps(error['input'], default=str)})"


SECTIONS: Mapping[tuple[str, ...], type[RecipeSection]] = {
    (): TrainingConfig,
    ("data",): DataConfig,
    ("data", "ending"): EndingConfig,
    ("optimizer",): OptimizerConfig,
    ("run",): RunConfig,
    ("card",): CardConfig,
}


def _describe_unknown_key(place: tuple[int | str, ...]) -> str:
    """Name the section that has such a key, a similar key, or all keys of the section."""
    *section, key = map(str, place)
    keys = [*SECTIONS[tuple(section)].model_fields, *([] if section else ["extends"])]
    name = f"[{'.'.join(section)}]" if section else "a configuration"
    elsewhere = [
        ".".join((*path, key))
        for path, kind in SECTIONS.items()
        if key in kind.model_fields and list(path) != section
    ]
    if elsewhere:
        return f"{name} has no such key; there is {', '.join(elsewhere)}"
    similar = get_close_matches(key.lower().replace("-", "_"), keys, n=1)
    if similar:
        return f"{name} has no such key; did you mean {similar[0]}?"
    return f"{name} has no such key; its keys are {', '.join(keys)}"
