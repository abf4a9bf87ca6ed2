"""Makes what all engines of a race are given: the same texts, and the same token ids of them."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, cycle, islice
from pathlib import Path

import click

from loadtest.bench.compare_workloads import (
    OF_ENCODERS,
    OF_LANGUAGE_MODELS,
    OF_TRANSLATORS,
    Inputs,
    WorkloadKind,
)
from loadtest.bench.workload import SENTENCES, build_workload
from serving.bundle.manifest import Task
from serving.pipelines.cards import ModelCard
from serving.pipelines.encoding.requests import EncodingRequests
from serving.pipelines.jobs import EncodeJob
from serving.pipelines.loading import ModelParts

MOST_STREAMS = 32


@dataclass(frozen=True)
class Sentence:
    """A line that is one sentence, by its number, from 0."""

    line: int
    text: str
    ids: list[int]


@dataclass(frozen=True)
class ComparisonInputs:
    """The inputs of a comparison.

    even: sentences for batches, or prompts.
    file: sentences of a file that is given as a whole.
    ids: token ids of the even ones, then of the file.
    kept_of_file: which lines of the file are used.
    prompts: begins to yield prompts of equal length, of a language model; see `cut_prompts`.
    """

    card: ModelCard
    even: list[str]
    file: list[str]
    ids: list[list[int]]
    read: Callable[[list[int]], str]
    kept_of_file: Sequence[int] = ()
    num_lines_of_file: int = 0
    prompts: Callable[[], Iterator[list[int]]] = lambda: iter(())

    @property
    def is_of_language_model(self) -> bool:
        return self.card.task is Task.GENERATE

    @property
    def kinds(self) -> tuple[WorkloadKind, ...]:
        """List the kinds of workloads that the model can take."""
        if self.card.task.only_encodes:
            return OF_ENCODERS
        return OF_LANGUAGE_MODELS if self.is_of_language_model else OF_TRANSLATORS

    def shorten(self, num_sentences: int) -> "ComparisonInputs":
        """Return the inputs with at most this many sentences of the file."""
        ids = self.ids[: len(self.even) + num_sentences]
        return replace(
            self,
            file=self.file[:num_sentences],
            ids=ids,
            kept_of_file=self.kept_of_file[:num_sentences],
        )

    def inputs(self, max_new_tokens: int) -> Inputs:
        return Inputs(len(self.even), len(self.file), max_new_tokens)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"texts": self.even + self.file, "ids": self.ids}), "utf-8")


def read_inputs(
    bundle: Path, even: str | None, file: str | None, prompt_tokens: int
) -> ComparisonInputs:
    """Read the lines of two texts as the service would; without any, the built-in sentences."""
    parts = ModelParts.open(bundle)
    if parts.bundle.manifest.task is Task.GENERATE:
        return _prompts(parts, even, prompt_tokens)
    if parts.bundle.manifest.task.only_encodes:
        return _texts(parts, file or even or SENTENCES)
    return _sentences(parts, even, file or even)


def _sentences(parts: ModelParts, even: str | None, file: str | None) -> ComparisonInputs:
    """Keep the lines that are one sentence to the service: one request in, one translation out."""
    evens, files = (_single_sentences(parts, text) for text in (even, file))
    return ComparisonInputs(
        _card(parts),
        [item.text for item in evens],
        [item.text for item in files],
        [item.ids for item in (*evens, *files)],
        parts.tokenizers.target.decode,
        [item.line for item in files],
        len((file or "").splitlines()),
    )


def _card(parts: ModelParts) -> ModelCard:
    """Return the card; a chat model that translates is measured as the language model it is."""
    manifest = parts.bundle.manifest
    return replace(ModelCard.from_manifest(manifest), task=manifest.task)


def _single_sentences(parts: ModelParts, text: str | None) -> list[Sentence]:
    items = []
    for number, line in enumerate((text or SENTENCES).splitlines()):
        requests = build_workload(parts, line, None, "cpu", 1).once() if line.strip() else []
        if len(requests) == 1 and requests[0].source_ids:
            items.append(Sentence(number, line.strip(), list(requests[0].source_ids)))
    if not items:
        raise click.ClickException("no line of the input is one sentence to the service")
    return items


def _texts(parts: ModelParts, file: str) -> ComparisonInputs:
    """Take the lines of a file as texts, cut to what the model reads."""
    texts = [line.strip() for line in file.splitlines() if line.strip()]
    requests = EncodingRequests(parts.bundle.manifest, parts.tokenizers.source)
    built = requests.encodings(EncodeJob("", tuple(texts), max_tokens=0))
    ids = [list(request.source_ids or ()) for request in built]
    return ComparisonInputs(_card(parts), [], texts, ids, parts.tokenizers.source.decode)


def _prompts(parts: ModelParts, text: str | None, length: int) -> ComparisonInputs:
    """Cut a text into prompts of equal length, one for each stream."""
    tokenizer = parts.tokenizers.target
    lines = build_workload(parts, text, None, "cpu", 1).texts
    ids = list(chain.from_iterable(map(tokenizer.encode, lines)))
    prompts = partial(cut_prompts, ids, length)
    evens = list(islice(prompts(), MOST_STREAMS))
    texts = [*map(tokenizer.decode, evens)]
    return ComparisonInputs(_card(parts), texts, [], evens, tokenizer.decode, prompts=prompts)


def cut_prompts(ids: Sequence[int], length: int) -> Iterator[list[int]]:
    """Yield prompts from all over a text without end. No two begin alike, as far as the text has
    other words, so that no server knows the beginning of one from another.
    """
    stride = max(len(ids) // MOST_STREAMS, 1)
    for number in count():
        start = number % MOST_STREAMS * stride + number // MOST_STREAMS
        yield list(islice(cycle(ids), start % len(ids), start % len(ids) + length))
