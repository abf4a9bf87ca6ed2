"""A family's figures as the repository keeps them: one small JSON file, section by section.

A section is None until its stage is done. All of a file is about one checkpoint; the figures of
another one begin a new file.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError


class ResultsSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Validation(ResultsSection):
    """A validation on the way: of a language model there is no BLEU."""

    minutes: float
    dev_loss: float
    dev_bleu: float | None


class TrainingResults(ResultsSection):
    """minutes: as `clock` counts them, validations included. epochs: over the training data.
    seed: of weights and order. curve: of validations; results from before they were kept have none.
    """

    command: str
    clock: str
    max_minutes: float
    minutes: float
    tokens_per_batch: int
    steps: int
    epochs: float
    dev_loss: float
    seed: int = 1
    curve: tuple[Validation, ...] = ()


class TranslationQuality(ResultsSection):
    """sacreBLEU and chrF of detokenised text. bleu_interval: half of BLEU's 95 % interval, by
    bootstrap over the sentences. lowercased_bleu: of the same text in lower case, its elisions
    split (l' eau), so that it is nearer to what papers on this test set report.
    """

    bleu: float
    bleu_interval: float
    chrf: float
    lowercased_bleu: float


class Searches(ResultsSection):
    greedy: TranslationQuality
    beam_5: TranslationQuality


class LengthBin(ResultsSection):
    """Sentences whose sources have so many words, as white space separates them."""

    words: str
    sentences: int
    mean_words: float
    bleu: float


class TranslationResults(ResultsSection):
    """by_length: of beam 5 in fp32."""

    command: str
    test: str
    sentences: int
    bleu_signature: str
    lowercased_bleu_signature: str
    chrf_signature: str
    fp32: Searches
    int8: Searches
    by_length: tuple[LengthBin, ...]


class DocumentBits(ResultsSection):
    """bits: that a language model needs for it."""

    bytes: int
    bits: float


class ProseResults(ResultsSection):
    """Bits per byte of the documents that the recipes hold out, and how they are read.
    by_document: in fp32.
    """

    command: str
    documents: int
    bytes: int
    tokens: int
    window: int
    stride: int
    fp32: float
    int8: float
    perplexity: float
    by_document: tuple[DocumentBits, ...]


class StateBytes(ResultsSection):
    """Describes what an engine keeps for a row, in bytes; states that a step overwrites count
    twice, because it reads them from one buffer and writes them to another.
    """

    has_attention: bool
    fixed_bytes: int
    bytes_per_source_token: int
    bytes_per_target_token: int


class TokensPerSecond(ResultsSection):
    """Greedy tokens/s of the engine with so many requests in flight, sources encoded; and of its
    decoding over the step graph alone at 32 rows.
    """

    batch_1: float
    batch_32: float
    engine_over_graph: float


class SpeedResults(ResultsSection):
    command: str
    machine: str
    threads: int
    fp32: TokensPerSecond
    int8: TokensPerSecond


class Results(ResultsSection):
    """checkpoint: SHA-256 of its weights."""

    name: str
    title: str
    architecture: str
    languages: str
    parameters: int
    checkpoint: str
    training: TrainingResults | None = None
    bundle: StateBytes | None = None
    translation: TranslationResults | None = None
    prose: ProseResults | None = None
    speed: SpeedResults | None = None

    @property
    def is_of_prose(self) -> bool:
        """Whether it is a language model, which has one language."""
        return "-" not in self.languages

    @property
    def year(self) -> int:
        """Read the paper's year off the title; 0 where it names none."""
        year = re.search(r"\b(19|20)\d\d\b", self.title)
        return int(year.group()) if year else 0

    def save(self, path: Path) -> None:
        """Replace the file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        os.replace(fresh, path)


def read_results(path: Path) -> Results | None:
    """Return the results of a file, None if it is missing. Raises ZooError."""
    try:
        return Results.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise ZooError([f"{path}: {problem}" for problem in problems]) from None


def read_all(folder: Path) -> tuple[list[Results], list[str]]:
    """Return all results of a folder by name, and a problem for each that cannot be read."""
    all_results, problems = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            all_results += [results] if (results := read_results(path)) else []
        except ZooError as error:
            problems += error.problems
    return all_results, problems


class ZooError(Exception):
    """Something that cannot be done; `problems` lists every reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


class OutOfTime(Exception):
    """The time for this call is over; what was in progress is saved, and goes on with the next."""
