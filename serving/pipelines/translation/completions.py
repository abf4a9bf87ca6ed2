"""Answers what is asked of a language model with translations, so that whoever knows only
completions and chats can ask a translator.
"""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from serving.errors import RequestError
from serving.pipelines.decoding import MAX_NEW_TOKENS, Decoding
from serving.pipelines.jobs import CompletionDelta, CompletionJob, Deltas, collect
from serving.pipelines.translation.job import (
    Rendering,
    Translation,
    TranslationDelta,
    TranslationJob,
)
from serving.text.chat import Chat

if TYPE_CHECKING:
    from serving.pipelines.catalog import Translator


class TranslatingGenerator:
    """Translates these texts, one for each prompt of the job that it is given: it is a `Generator`.

    Where nothing else is said translations are greedy, and as long as they have to be.
    """

    def __init__(
        self, translator: "Translator", texts: Sequence[str], source: str, target: str
    ) -> None:
        card = translator.card
        defaults: dict[str, Any] = {"temperature": 0.0, MAX_NEW_TOKENS: None}
        self.card = replace(card, generation=defaults | card.generation)
        self._translator, self._texts = translator, tuple(texts)
        self._source, self._target = source, target

    async def run(self, job: CompletionJob) -> list[CompletionDelta]:
        return await collect(self.stream(job), job.num_completions)

    async def stream(self, job: CompletionJob) -> Deltas:
        """Yield what is certain of each translation, and at the end what is left of all.

        Of several samples each is a translation of its own; of several hypotheses the first comes
        piece by piece. Raises RequestError for what can be asked of language models only.
        """
        _check(self.card.name, job)
        wanted = self._job(job)
        step = job.num_choices if wanted.num_alternatives else 1
        async with aclosing(self._translator.stream(wanted)) as items:
            async for item in items:
                if isinstance(item, TranslationDelta):
                    yield CompletionDelta(item.text * step, item.piece)
                    continue
                for last in _last_deltas(job, item, step):
                    yield last

    def _job(self, job: CompletionJob) -> TranslationJob:
        searches = job.decoding.beam is not None and job.num_choices > 1
        times = 1 if searches else job.num_choices
        return TranslationJob(
            job.request_id,
            tuple(text for text in self._texts for _ in range(times)),
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
    """Ask for all hypotheses: some may be the same text."""
    beam = decoding.beam
    assert beam is not None
    return replace(decoding, beam=replace(beam, num_hypotheses=beam.num_beams))


def _last_deltas(
    job: CompletionJob, translation: Translation, step: int
) -> Iterator[CompletionDelta]:
    """Yield the end of each choice. Tokens are counted for all of them together, with the first;
    of a prompt's alternatives that are fewer than its choices the last stands for what is missing.
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
