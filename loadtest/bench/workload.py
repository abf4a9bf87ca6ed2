"""The requests of the benchmarks: sentences or prompts, built as the service builds them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from serving.bundle.manifest import Task
from serving.engine.config import Device, EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graphs
from serving.engine.runtime.session import open_graphs
from serving.pipelines.cards import ModelCard
from serving.pipelines.completion.prompts import PromptReader
from serving.pipelines.completion.requests import CompletionRequests
from serving.pipelines.decoding import Decoding
from serving.pipelines.jobs import CompletionJob
from serving.pipelines.loading import ModelParts
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.requests import TranslationRequests
from serving.pipelines.translation.segmenting import TextSegmenter
from serving.requests.request import GenerationRequest

SENTENCES = """\
A man in a red jacket is waiting for the bus.
Two dogs are running through the snow.
I don't know what to say.
She has been working here for three years, and she still likes it.
The children are playing football in the park near the old church.
Where did you put the keys?
A young woman with long hair is reading a book on a bench in front of the museum.
It was raining so hard that we had to stop the car.
He told me that he would come back before the end of the week.
People are sitting around a table and eating dinner.
What time does the train leave?
The little girl is holding her father's hand while they cross the street.
I would have called you if I had known your number.
A group of people are standing on a beach, watching the sun go down.
My brother never drinks coffee.
An old man is playing the guitar on the street while a small crowd listens to him.
"""
PROMPT_NEW_TOKENS = 64


@dataclass(frozen=True)
class BenchWorkload:
    """A model, the device that runs it, and the requests that are repeated.

    texts: sentences to translate, or prompts.
    decoding: greedy; options of the benchmarks and comparisons change it.
    """

    parts: ModelParts
    device: Device
    threads: int
    texts: tuple[str, ...]
    decoding: Decoding

    def config(self, slots: int, prefix_cache_bytes: int = 0) -> EngineConfig:
        """Return the configuration of the engine. Caches are off, because the benchmark repeats its
        texts.
        """
        return EngineConfig(
            slots,
            self.threads,
            self.device,
            prefix_cache_bytes=prefix_cache_bytes,
            encoder_cache_bytes=0,
        )

    def engine(
        self, slots: int, prefix_cache_bytes: int = 0, graphs: Graphs | None = None
    ) -> Engine:
        engine = self.parts.engine(self.config(slots, prefix_cache_bytes), graphs)
        engine.warm_up()
        return engine

    def engines(self, slots: int, count: int) -> list[Engine]:
        """Make engines that share their graphs."""
        graphs = open_graphs(self.parts.bundle, self.config(slots))
        return [self.engine(slots, graphs=graphs) for _ in range(count)]

    def requests(self, name: str = "", **changes: Any) -> Iterator[GenerationRequest]:
        """Yield the requests of all texts again and again.

        name: keeps their ids apart from those of others.
        changes: of the decoding, by the names of its fields.
        """
        for number, request in enumerate(cycle(self.once(**changes))):
            yield replace(request, request_id=f"{name}{number}")

    def once(self, **changes: Any) -> list[GenerationRequest]:
        """Return the requests of all texts."""
        return _requests_of(self.parts, self._job(replace(self.decoding, **changes)))

    def _job(self, decoding: Decoding) -> CompletionJob | TranslationJob:
        """Ask for all texts at once, in the first languages of a model of many."""
        if self.parts.bundle.manifest.task is Task.GENERATE:
            return CompletionJob("", self.texts, decoding)
        card = ModelCard.from_manifest(self.parts.bundle.manifest)
        source = card.source_languages[0]
        return TranslationJob("", self.texts, source, card.targets_of(source)[0], decoding)


def build_workload(
    parts: ModelParts, text: str | None, max_new_tokens: int | None, device: Device, threads: int
) -> BenchWorkload:
    """Ask a model for the lines of a text, or for the built-in sentences.

    max_new_tokens: of each request; None leaves translations as long as the service lets them be.
    """
    lines = tuple(line for line in (text or SENTENCES).splitlines() if line.strip())
    if parts.bundle.manifest.task is Task.GENERATE:
        lines = tuple(_cut(parts, line) for line in lines)
        max_new_tokens = max_new_tokens or PROMPT_NEW_TOKENS
    return BenchWorkload(parts, device, threads, lines, Decoding(max_new_tokens=max_new_tokens))


def _requests_of(parts: ModelParts, job: CompletionJob | TranslationJob) -> list[GenerationRequest]:
    """Build what the service would ask its engine for."""
    manifest, tokenizers = parts.bundle.manifest, parts.tokenizers
    if isinstance(job, CompletionJob):
        reader = PromptReader(manifest, tokenizers.target)
        builder = CompletionRequests(manifest, tokenizers.target)
        prompts = enumerate(map(reader.read, job.prompts))
        runs = [run for number, prompt in prompts for run in builder.runs(job, number, prompt)]
        return [run.request for run in runs if run.request is not None]
    plan = TextSegmenter(manifest.limits, manifest.tokens, tokenizers).plan(job)
    return TranslationRequests(manifest, tokenizers, parts.shortlist).translations(job, plan)


def _cut(parts: ModelParts, prompt: str) -> str:
    """Cut a prompt to half of what fits: the service would refuse one that leaves no room."""
    tokenizer, room = parts.tokenizers.target, parts.bundle.manifest.limits.max_target_tokens // 2
    ids = tokenizer.encode(prompt)
    return prompt if len(ids) <= room else tokenizer.decode(ids[:room])
