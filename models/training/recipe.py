"""Choose a configuration for texts of a user: sizes from the amount of text and the time.

A file of pairs makes a Transformer that translates, a file of prose a language model in the shape
of Llama. The largest size is taken that has enough text and sees all of it several times.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import py3langid
import torch

from models.data.corpus import SentencePair, read_documents, read_pairs
from models.errors import InputError
from models.training.config import read_config

FEWEST_PAIRS = 50
FEWEST_CHARACTERS = 20_000  # of prose
MOST_HELD_OUT = 500  # pairs to validate and as many to test
EPOCHS = 5  # so often a run of the chosen size sees all texts at least, if any size does
CHARACTERS_PER_TOKEN = 4
LONGEST_LINE = 2_000  # characters; a longer one is no sentence, and is not learned from
IDENTIFIED_CHARACTERS = 20_000
MEASURED_THREADS = 2  # of the speeds below
# A step of d_model 128 and 512 tokens took 0.14 s of one core in fp32 and 0.21 s in bf16 (Xeon).
LEAST_DIM_OF_BF16 = 256
SPEED_OF_A_GPU = 50  # as a multiple of two cores, for the choice alone


@dataclass(frozen=True)
class ModelSize:
    """Sizes of a model, for `tokens` of text or more.

    tokens_per_second: about as many tokens two cores learn from.
    """

    tokens: int
    dim: int
    layers: tuple[int, ...]
    vocab_size: int
    tokens_per_batch: int
    tokens_per_second: int


# The first is for any amount of text. Speeds of a Xeon with AMX; half of it for the sizes in bf16,
# which other processors are slower at.
TRANSLATORS = (
    ModelSize(0, 128, (3, 1), 1_000, 512, 6_500),
    ModelSize(50_000, 128, (3, 2), 4_000, 1_024, 5_500),
    ModelSize(400_000, 192, (4, 2), 8_000, 1_536, 3_500),
    ModelSize(2_000_000, 256, (6, 2), 8_000, 2_048, 1_500),
)
LANGUAGE_MODELS = (
    ModelSize(0, 128, (2,), 1_000, 1_024, 13_000),
    ModelSize(100_000, 128, (4,), 2_000, 2_048, 8_500),
    ModelSize(1_000_000, 192, (4,), 4_000, 2_048, 5_000),
    ModelSize(3_000_000, 256, (4,), 4_096, 4_096, 3_000),
)
CONTEXT = 256


@dataclass(frozen=True)
class Choice:
    """A line of what is said about a recipe: what was chosen, and why."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class Recipe:
    """values: of the configuration file. choices: what is worth saying about them."""

    values: dict[str, Any]
    choices: tuple[Choice, ...]

    def as_toml(self) -> str:
        """Return the configuration file, with the choices as its comment."""
        lines = [f"# {line}" for line in self.as_table().splitlines()]
        lines += _toml_lines("", self.values)
        return "\n".join(lines) + "\n"

    def as_table(self) -> str:
        name_width = max(len(choice.name) for choice in self.choices)
        width = max(len(choice.value) for choice in self.choices)
        return "\n".join(
            f"{choice.name:{name_width}}  {choice.value:{width}}  {choice.reason}".rstrip()
            for choice in self.choices
        )


def write_translator(
    pairs: Path,
    folder: Path | None,
    minutes: float,
    source: str | None = None,
    target: str | None = None,
) -> Path:
    """Write a configuration for a file of pairs into the folder of its run; return its path.

    One that is there already stays, so that a run goes on with the sizes it began with. folder:
    None is that of the run's name.
    """
    path = _config_path(pairs, folder)
    if not path.exists():
        _write(choose_translator(pairs, minutes, source, target), path)
    _check_same_text(path, pairs)
    return path


def write_language_model(text: Path, folder: Path | None, minutes: float) -> Path:
    """Write a configuration for a file of prose, as `write_translator` does for pairs."""
    path = _config_path(text, folder)
    if not path.exists():
        _write(choose_language_model(text, minutes), path)
    _check_same_text(path, text)
    return path


def _config_path(text: Path, folder: Path | None) -> Path:
    name = _run_name(text)
    return (folder or Path("build/runs") / name) / f"{name}.toml"


def _run_name(text: Path) -> str:
    return text.name.split(".")[0] or "run"


def _write(recipe: Recipe, path: Path) -> None:
    """Show the choices, and write the configuration."""
    click.echo(recipe.as_table(), err=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(recipe.as_toml(), encoding="utf-8")
    click.echo(f"written to {path}, to be changed and trained again", err=True)


def _check_same_text(path: Path, text: Path) -> None:
    """Raise InputError if the configuration of a folder is for another file."""
    names = read_config(path).data.train
    if names != (str(text.resolve()),):
        raise InputError(f"{path} is for {', '.join(names)}: name another folder with -o")


def choose_translator(
    path: Path, minutes: float, source: str | None = None, target: str | None = None
) -> Recipe:
    """Return a recipe for a file of pairs. Raise InputError if it cannot be learned from.

    source, target: codes of the languages; None is identified in the text.
    """
    pairs = _check_pairs(path, read_pairs(path))
    identified = "identified in the text; --source and --target name others"
    languages = [
        source or identify_language([pair.source for pair in pairs]),
        target or identify_language([pair.target for pair in pairs]),
    ]
    if languages[0] == languages[1]:
        raise InputError(
            f"{path}: both columns look like the language {languages[0]}: name the languages with "
            "--source and --target"
        )
    num_tokens = sum(len(pair.target) for pair in pairs) // CHARACTERS_PER_TOKEN
    size = _choose_size(TRANSLATORS, num_tokens, minutes)
    num_held_out = max(1, min(MOST_HELD_OUT, len(pairs) // 10))
    epochs = _estimate_epochs(size, num_tokens, minutes)
    encoder_layers, decoder_layers = size.layers
    model: dict[str, Any] = {
        "architecture": "transformer",
        "source_languages": [languages[0]],
        "target_languages": [languages[1]],
        "vocab_size": size.vocab_size,
        "d_model": size.dim,
        "num_heads": 4,
        "ffn_dim": 4 * size.dim,
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
        "dropout": _choose_dropout(epochs),
    }
    shape = f"transformer, d_model {size.dim}, {encoder_layers} + {decoder_layers} layers"
    num_learned = len(pairs) - 2 * num_held_out
    choices = (
        Choice("pairs", f"{num_learned:,} to learn from", f"of {len(pairs):,} in {path.name}"),
        Choice("held out", f"{num_held_out} + {num_held_out} pairs", "to validate and to test"),
        Choice(
            "languages", " to ".join(languages), "as named" if source and target else identified
        ),
        *_describe_size(size, shape, model["dropout"], epochs, num_tokens, minutes),
    )
    held_out = round(num_held_out / len(pairs), 5)
    return Recipe(_values(path, model, size, minutes, held_out, {}), choices)


def choose_language_model(path: Path, minutes: float) -> Recipe:
    """Return a recipe for a file of prose. Raise InputError if it cannot be learned from."""
    documents = read_documents(path)
    num_characters = sum(map(len, documents))
    if num_characters < FEWEST_CHARACTERS or len(documents) < 2:
        raise InputError(
            f"{path} has {num_characters:,} characters in {len(documents)} documents; a language "
            f"model needs {FEWEST_CHARACTERS:,} in two chapters, paragraphs or lines at least"
        )
    num_tokens = num_characters // CHARACTERS_PER_TOKEN
    size = _choose_size(LANGUAGE_MODELS, num_tokens, minutes)
    epochs = _estimate_epochs(size, num_tokens, minutes)
    [num_layers] = size.layers
    language = identify_language(documents)
    model: dict[str, Any] = {
        "architecture": "llama",
        "languages": [language],
        "vocab_size": size.vocab_size,
        "d_model": size.dim,
        "num_layers": num_layers,
        "num_heads": 4,
        "num_kv_heads": 2,
        "ffn_dim": 3 * size.dim,
        "context_length": CONTEXT,
        "dropout": _choose_dropout(epochs),
    }
    held_out = min(0.2, max(0.02, 1 / len(documents)))
    shape = f"llama, d_model {size.dim}, {num_layers} layers"
    choices = (
        Choice("documents", f"{len(documents):,}", f"{num_characters:,} characters of {path.name}"),
        Choice("held out", f"{held_out:.0%} of the documents", "to validate and to test"),
        Choice("language", language, "identified in the text"),
        *_describe_size(size, shape, model["dropout"], epochs, num_tokens, minutes),
    )
    run = {"label_smoothing": 0.0}
    return Recipe(_values(path, model, size, minutes, held_out, run), choices)


def _check_pairs(path: Path, pairs: Sequence[SentencePair]) -> list[SentencePair]:
    usable = [
        pair
        for pair in pairs
        if pair.source.strip()
        and pair.target.strip()
        and max(len(pair.source), len(pair.target)) <= LONGEST_LINE
    ]
    distinct = len({pair.source for pair in usable})
    if distinct < FEWEST_PAIRS:
        others = len(pairs) - len(usable)
        skipped = f" ({others:,} empty or beyond {LONGEST_LINE:,} characters)" if others else ""
        raise InputError(
            f"{path} has {distinct:,} usable pairs{skipped}; training needs {FEWEST_PAIRS} "
            "different sentences at least, each with a tab and its translation"
        )
    return usable


def identify_language(texts: Sequence[str]) -> str:
    """Return the code of the language that most of the texts are in."""
    step = max(1, len(texts) // 200)
    language, _ = py3langid.classify(" ".join(texts[::step])[:IDENTIFIED_CHARACTERS])
    return str(language)


def _relative_speed() -> float:
    """Return about how much faster this machine is than what the speeds were measured on."""
    if torch.cuda.is_available():
        return SPEED_OF_A_GPU
    return torch.get_num_threads() / MEASURED_THREADS


def _estimate_epochs(size: ModelSize, num_tokens: int, minutes: float) -> float:
    learned = 60 * minutes * size.tokens_per_second * _relative_speed()
    return learned / max(1, num_tokens)


def _choose_size(sizes: Sequence[ModelSize], num_tokens: int, minutes: float) -> ModelSize:
    """Return the largest size with enough text that sees it often enough; else the smallest one."""
    fitting = [
        size
        for size in sizes
        if num_tokens >= size.tokens and _estimate_epochs(size, num_tokens, minutes) >= EPOCHS
    ]
    return fitting[-1] if fitting else sizes[1 if num_tokens >= sizes[1].tokens else 0]


def _choose_dropout(epochs: float) -> float:
    """Return more dropout the more often the same texts are seen."""
    return 0.1 if epochs < 20 else 0.2 if epochs < 60 else 0.3


def _describe_size(
    size: ModelSize, shape: str, dropout: float, epochs: float, num_tokens: int, minutes: float
) -> Iterator[Choice]:
    seen = f"about {epochs:.0f} times" if epochs >= 2 else "once or less"
    yield Choice("model", shape, f"for about {num_tokens:,} tokens, seen {seen}")
    yield Choice("vocabulary", f"{size.vocab_size:,} tokens", "byte-level BPE of your text")
    yield Choice("dropout", f"{dropout}", "more where the same text is seen more often")
    yield Choice("batch", f"{size.tokens_per_batch:,} tokens", "a step well under a second")
    yield Choice("time", f"{minutes:g} minutes", "validation takes a tenth of them at most")


def _values(
    path: Path,
    model: dict[str, Any],
    size: ModelSize,
    minutes: float,
    held_out: float,
    run: dict[str, Any],
) -> dict[str, Any]:
    return {
        "name": _run_name(path),
        "model": model,
        "data": {"train": [str(path.resolve())], "held_out": held_out},
        "optimizer": {"name": "muon", "learning_rate": 3e-3},
        "run": {
            "tokens_per_batch": size.tokens_per_batch,
            "max_minutes": minutes,
            "validations": 20,
            "bleu_sentences": 100,
            "precision": "fp32" if size.dim < LEAST_DIM_OF_BF16 else "bf16",
            **run,
        },
    }


def _toml_lines(section: str, values: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table: its own keys, then its sections. JSON's values are TOML's."""
    for name, value in values.items():
        if not isinstance(value, dict):
            yield f"{name} = {json.dumps(value, ensure_ascii=False)}"
    for name, value in values.items():
        if isinstance(value, dict):
            path = f"{section}.{name}" if section else name
            yield from ("", f"[{path}]", *_toml_lines(path, value))
