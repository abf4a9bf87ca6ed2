"""A translator behind the interface of a language model, for clients that know only completions and
chats.
"""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from serving.errors import RequestError
from serving.pipelines.catalog import Translator
from serving.pipelines.decoding import MAX_NEW_TOKENS, Decoding
from serving.pipelines.jobs import CompletionDelta, CompletionJob, Deltas, collect
from serving.pipelines.same_language import SameLanguageTranslator
from serving.pipelines.translation.job import (
    Rendering,
    Translation,
    TranslationDelta,
    TranslationJob,
)
from serving.text.chat_template import Chat


class TranslatingGenerator:
    """Translates texts, one for each prompt of a completion job. It has the interface of a
    `Generator`.

    By default translations are greedy, and their length is not limited.
    runs_model: whether a model translates the texts; else they are in the target language.
    """

    def __init__(
        self, translator: Translator, texts: Sequence[str], source: str, target: str
    ) -> None:
        card = translator.card
        defaults: dict[str, Any] = {"temperature": 0.0, MAX_NEW_TOKENS: None}
        self.card = replace(card, generation=defaults | card.generation)
        self._translator, self._texts = translator, tuple(texts)
        self._source, self._target = source, target
        self.runs_model = not isinstance(translator, SameLanguageTranslator)

    async def run(self, job: CompletionJob) -> list[CompletionDelta]:
        return await collect(self.stream(job), job.num_completions)

    async def stream(self, job: CompletionJob) -> Deltas:
        """Yield the parts of each translation that are final, and at the end the rest of all.

        Each sample is a translation of its own; of several hypotheses only the first is streamed.
        Raises RequestError for options that only language models have.
        """
        _check(self.card.name, job)
        translation_job = self._translation_job(job)
        step = job.num_choices if translation_job.num_alternatives else 1
        async with aclosing(self._translator.stream(translation_job)) as items:
            async for item in items:
                if isinstance(item, TranslationDelta):
                    yield CompletionDelta(item.text * step, item.piece)
                    continue
                for last in _last_deltas(job, item, step):
                    yield last

    def _translation_job(self, job: CompletionJob) -> TranslationJob:
        searches = job.decoding.beam is not None and job.num_choices > 1
        num_copies = 1 if searches else job.num_choices
        return TranslationJob(
            job.request_id,
            tuple(text for text in self._texts for _ in range(num_copies)),
            self._source,
            self._target,
            _with_all_hypotheses(job.decoding) if searches else job.decoding,
            num_alternatives=job.num_choices - 1 if searches else 0,
            protection=True,
        )


def _check(name: str, job: CompletionJob) -> None:
    chats = [prompt for prompt in job.prompts if isinstance(prompt, Chat)]
    structure = job.decoding.structure
    refused = {
        "stop": job.stop,
        "echo": job.echo,
        "return_attention": bool(job.attention_queries),
        "return_token_ids": job.returns_token_ids,
        "logprobs": job.decoding.logprobs is not None,
        "continue_final_message": any(chat.continues_last for chat in chats),
        "tools": any(chat.tools for chat in chats),
        "chat_template_kwargs": any(chat.variables for chat in chats),
        structure.field if structure else "response_format": structure is not None,
    }
    for field, is_asked in refused.items():
        if is_asked:
            raise RequestError(field, is_asked, f"model {name} translates; it cannot do that")


def _with_all_hypotheses(decoding: Decoding) -> Decoding:
    """Return the decoding with all hypotheses of the beam, because some may be the same text."""
    beam = decoding.beam
    assert beam is not None
    return replace(decoding, beam=replace(beam, num_hypotheses=beam.num_beams))


def _last_deltas(
    job: CompletionJob, translation: Translation, step: int
) -> Iterator[CompletionDelta]:
    """Yield the last delta of each choice. The first one counts the tokens of all choices. If a
    prompt has fewer alternatives than choices, the last one is repeated.
    """
    repeated = job.num_choices // step
    for number, renderings in enumerate(translation.renderings):
        ranked = [*renderings, *[renderings[-1]] * (step - len(renderings))]
        for rank, rendering in enumerate(ranked):
            index = number * step + rank
            yield CompletionDelta(
                index,
                rendering.text if rank else "",
                finish_reason=rendering.reason,
                num_prompt_tokens=(
                    translation.num_source_tokens // repeated if index < job.num_choices else 0
                ),
                num_generated_tokens=0 if index else translation.num_generated_tokens,
                score=_score(job, rendering),
            )


def _score(job: CompletionJob, rendering: Rendering) -> float | None:
    return rendering.score if job.decoding.beam else None
