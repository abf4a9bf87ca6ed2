"""What the bench asks of an engine: sentences and prompts, as requests without end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from serving.bundle.manifest import Manifest
from serving.bundle.opening import Bundle
from serving.engine.config import Device, EngineConfig
from serving.engine.engine import Engine
from serving.pipelines.cards import ModelCard
from serving.pipelines.completion.job import CompletionJob
from serving.pipelines.completion.prompts import PromptReader
from serving.pipelines.completion.requests import CompletionRequests
from serving.pipelines.decoding import Decoding
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.planning import Planner
from serving.pipelines.translation.requests import TranslationRequests
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.request import GenerationRequest
from serving.text.shortlist import Shortlist
from serving.text.tokenizer import Tokenizer

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
class Workload:
    """A bundle, where to run it, and greedy requests whose texts the bench uses in turn.

    excluded_ids: of the engine. num_counted: of the requests' beam searches.
    """

    bundle: Bundle
    device: Device
    threads: int
    wanted: Sequence[GenerationRequest]
    excluded_ids: frozenset[int]
    num_counted: int

    def engine(self, slots: int, prefix_cache_bytes: int = 0) -> Engine:
        config = self.config(slots, prefix_cache_bytes)
        return Engine(self.bundle, config, excluded_ids=self.excluded_ids)

    def config(self, slots: int, prefix_cache_bytes: int = 0) -> EngineConfig:
        """Caches are off: the bench repeats its texts, users do not."""
        return EngineConfig(
            slots,
            self.threads,
            self.device,
            prefix_cache_bytes=prefix_cache_bytes,
            encoder_cache_bytes=0,
        )

    def requests(self, name: str = "", **changes: Any) -> Iterator[GenerationRequest]:
        """The requests again and again, changed so; `name` keeps their ids apart from others'."""
        if beam := changes.get("beam"):
            changes["beam"] = replace(beam, num_counted=self.num_counted)
        for i, request in enumerate(cycle(self.wanted)):
            yield replace(request, request_id=f"{name}{i}", **changes)


def workload_of(
    bundle: Bundle, text: str | None, max_new_tokens: int | None, device: Device, threads: int
) -> Workload:
    """Of `text`, or the built-in sentences: prompts, one a line, or what the service makes of the
    lines as sources, in the first languages of a model of many.
    """
    manifest, tokenizers = bundle.manifest, TokenizerPair.load(bundle)
    lines = [line for line in (text or SENTENCES).splitlines() if line.strip()]
    if "encode" in manifest.graphs:
        wanted, num_counted = _translations(bundle, tokenizers, lines, max_new_tokens)
    else:
        wanted, num_counted = _prompts(manifest, tokenizers.target, lines, max_new_tokens), 0
    return Workload(bundle, device, threads, wanted, tokenizers.target.textless_ids, num_counted)


def _prompts(
    manifest: Manifest, tokenizer: Tokenizer, lines: Sequence[str], max_new_tokens: int | None
) -> list[GenerationRequest]:
    """Return the requests that complete the lines, cut to half of what fits."""
    room = manifest.limits.max_target_tokens // 2
    decoding = Decoding(max_new_tokens=max_new_tokens or PROMPT_NEW_TOKENS)
    job = CompletionJob("", tuple(lines), decoding)
    reader, requests = PromptReader(manifest, tokenizer), CompletionRequests(manifest, tokenizer)
    whole = map(reader.read, lines)
    prompts = [replace(prompt, token_ids=prompt.token_ids[:room]) for prompt in whole]
    runs = [run for i, prompt in enumerate(prompts) for run in requests.runs(job, i, prompt)]
    return [run.request for run in runs if run.request is not None]


def _translations(
    bundle: Bundle, tokenizers: TokenizerPair, lines: Sequence[str], max_new_tokens: int | None
) -> tuple[list[GenerationRequest], int]:
    """Return the requests that translate the lines, and how many tokens of their prompts count in
    a beam search's lengths.
    """
    manifest, card = bundle.manifest, ModelCard.from_manifest(bundle.manifest)
    source = card.source_languages[0]
    target = card.targets_of(source)[0]
    decoding = Decoding(max_new_tokens=max_new_tokens)
    job = TranslationJob("", tuple(lines), source, target, decoding)
    plan = Planner(manifest.limits, manifest.tokens, tokenizers).plan(job)
    requests = TranslationRequests(manifest, tokenizers, Shortlist.load(bundle))
    return requests.translations(job, plan), plan.frame.num_counted
