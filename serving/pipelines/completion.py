"""Completes prompts and chats as streams: text that was sent never has to be taken back.

It knows text and token ids; neither HTTP nor how tokens are chosen.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import islice
from typing import Any

from serving.bundle.manifest import Manifest
from serving.engine.attention_query import resolve_queries
from serving.pipelines.attention_maps import TokenTexts, attention_maps
from serving.pipelines.cards import ModelCard
from serving.pipelines.completion_requests import (
    CompletionRequests,
    CompletionRun,
    Prompt,
    PromptReader,
)
from serving.pipelines.decoding import Decoding, EnginePort, Structure, raise_failure
from serving.pipelines.images import position_names
from serving.pipelines.jobs import (
    CompletionDelta,
    CompletionJob,
    Deltas,
    DetokenizeJob,
    Job,
    StreamedJob,
    TokenizeJob,
    TokenizeResult,
    TokenText,
    collect,
    describe_tokens,
    detokenize,
    join_deltas,
    unsupported_job,
)
from serving.pipelines.streams import merge
from serving.requests.request import (
    Constraint,
    FinishedEvent,
    FinishReason,
    Hypothesis,
    OutputTokens,
    TokenEvent,
    TokenLogprob,
)
from serving.text.chat_template import Chat
from serving.text.constraints.grammars import Grammars
from serving.text.reasoning_channels import HarmonyChannels
from serving.text.stop_strings import StopStrings
from serving.text.token_text import token_text
from serving.text.tokenizer import (
    Detokenizer,
    Tokenizer,
)


class IncrementalCompletion:
    """Makes deltas of tokens: text is emitted once nothing can take it back, and a token once its
    text is emitted.

    index: the completion's; one run of a beam search brings several. Stop strings are not looked
        for in the tokens of the prompt that are forced.
    """

    def __init__(
        self, tokenizer: Tokenizer, job: CompletionJob, run: CompletionRun, index: int
    ) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, run.begins_text)
        is_chat = any(isinstance(prompt, Chat) for prompt in job.prompts)
        self._channels = HarmonyChannels(tokenizer.special_tokens if is_chat else {})
        self._reasoning = ""  # not yet emitted
        self._stops = StopStrings(job.stop, job.includes_stop)
        self._includes_stop = job.includes_stop
        self._token_ids: list[int] | None = [] if job.returns_token_ids else None
        self._prompt_token_ids = run.prompt_token_ids if job.returns_token_ids else None
        self._reports_tokens = job.decoding.logprobs is not None
        self._index, self._num_prompt_tokens = index, run.num_prompt_tokens
        self._num_forced = run.num_forced
        self._num_generated_tokens = 0
        self._num_characters = 0
        self._num_emitted = 0
        self._tokens: deque[TokenText] = deque()
        self._echoed = "".join(map(self._echo, run.echoed))
        self.is_finished = False

    def push(
        self, token_id: int, logprob: float = 0.0, top: Sequence[TokenLogprob] = ()
    ) -> CompletionDelta | None:
        """Return the delta of one more token; None while nothing is certain."""
        is_said = self._channels.read(token_id)
        if self._reports_tokens and is_said:
            self._tokens.append(self._token_text(token_id, logprob, top))
        piece = self._written(token_id)
        if self._num_forced:
            self._num_forced -= 1
            return self._emit(piece, None)
        self._num_generated_tokens += 1
        if self._token_ids is not None:
            self._token_ids.append(token_id)
        text = self._stops.push(piece)
        return self._emit(text, FinishReason.STOP if self._stops.has_stopped else None)

    def finish(
        self,
        reason: FinishReason,
        stop_logprob: float | None = None,
        score: float | None = None,
        stop_id: int | None = None,
    ) -> CompletionDelta:
        """Return the last delta.

        stop_logprob, stop_id: of the stop token, which counts among the tokens; it has no text,
            unless the job includes it.
        score: of the hypothesis that it is; a text that is cut by a stop string is another one.
        """
        last = "" if stop_id is None or not self._includes_stop else self._written(stop_id)
        last += self._said(*self._channels.split(self._detokenizer.finish()))
        text = self._stops.push(last)
        if self._stops.has_stopped:
            reason, score = FinishReason.STOP, None
        else:
            if self._token_ids is not None and stop_id is not None:
                self._token_ids.append(stop_id)
            text += self._stops.finish()
            if self._reports_tokens and stop_logprob is not None:
                self._tokens.append(TokenText(b"", stop_logprob, (), self._num_characters))
        delta = self._emit(text, reason)
        assert delta is not None, "a delta that ends a completion is never held back"
        return replace(delta, score=score)

    def _echo(self, token_id: int) -> str:
        """Begin with a token of which no more is known; it is emitted with the first delta, as the
        engine may yet refuse.
        """
        if self._reports_tokens:
            token = self._tokenizer.bytes_or_id(token_id)
            self._tokens.append(TokenText(token, None, (), self._num_characters))
        return self._written(token_id)

    def _written(self, token_id: int) -> str:
        return self._said(*self._channels.split(self._detokenizer.push(token_id)))

    def _said(self, text: str, reasoning: str) -> str:
        self._reasoning += reasoning
        self._num_characters += len(text)
        return text

    def _emit(self, text: str, reason: FinishReason | None) -> CompletionDelta | None:
        if text or reason:
            text, self._echoed = self._echoed + text, ""
        self._num_emitted += len(text)
        self.is_finished = reason is not None
        tokens, reasoning = self._certain_tokens(), self._reasoning
        if not (text or tokens or reasoning or self.is_finished):
            return None
        self._reasoning, counts = "", (self._num_prompt_tokens, self._num_generated_tokens)
        delta = CompletionDelta(self._index, text, tokens, reason, *counts, reasoning)
        return delta if self._token_ids is None else self._with_token_ids(delta)

    def _with_token_ids(self, delta: CompletionDelta) -> CompletionDelta:
        """Add the ids of the tokens since the last delta, and to the first one the prompt's."""
        token_ids, self._token_ids = tuple(self._token_ids or ()), []
        prompt_token_ids, self._prompt_token_ids = self._prompt_token_ids, None
        return replace(delta, token_ids=token_ids, prompt_token_ids=prompt_token_ids)

    def _certain_tokens(self) -> tuple[TokenText, ...]:
        """Take the tokens whose text has begun to be emitted; at the end, if no stop string cut
        it, all.
        """
        is_whole = self.is_finished and not self._stops.has_stopped
        tokens = []
        while self._tokens and (is_whole or self._tokens[0].offset < self._num_emitted):
            tokens.append(self._tokens.popleft())
        return tuple(tokens)

    def _token_text(self, token_id: int, logprob: float, top: Sequence[TokenLogprob]) -> TokenText:
        bytes_or_id = self._tokenizer.bytes_or_id
        likeliest = tuple((bytes_or_id(token.token_id), token.logprob) for token in top)
        return TokenText(bytes_or_id(token_id), logprob, likeliest, self._num_characters)


class CompletionPipeline:
    """Serves the jobs of one language model."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, engine: EnginePort) -> None:
        self.card = ModelCard.from_manifest(manifest)
        self._prefix = tuple(manifest.tokens.prompt_prefix)
        self._tokenizer = tokenizer
        self._prompts = PromptReader(manifest, tokenizer)
        self._requests = CompletionRequests(manifest, tokenizer)
        self._structures = Structures(tokenizer, manifest.tokens.stop)
        self._manifest, self._source_names = manifest, position_names(manifest)
        self._engine = engine

    async def run(self, job: Job[Any]) -> Any:
        """Return the whole completions, or the tokens of a text or chat, or the text of tokens.

        Raises RequestError for what cannot be served, and Overloaded.
        """
        match job:
            case CompletionJob():
                return await collect(self.stream(job), job.num_completions)
            case TokenizeJob():
                return await asyncio.to_thread(self._tokenized, job)
            case DetokenizeJob():
                return await asyncio.to_thread(detokenize, self._tokenizer, job.token_ids)
        raise unsupported_job(self.card.name, job)

    async def stream(self, job: StreamedJob[Any, Any]) -> AsyncGenerator[Any, None]:
        """Yield deltas of all completions as they come; closing the stream cancels what still runs.

        Raises, as it begins, RequestError for what cannot be served, and Overloaded.
        """
        if not isinstance(job, CompletionJob):
            raise unsupported_job(self.card.name, job)
        self._engine.check_room(1, job.decoding.share, job.decoding.priority)
        resolve_queries(job.attention_queries, self._manifest)
        prompts = [await self._read(prompt, job.decoding) for prompt in job.prompts]
        for prompt in prompts:
            self._prompts.check_length(prompt, job.decoding.max_new_tokens or 0)
        runs = await self._runs(job, prompts)
        async with aclosing(merge([self._complete(job, run) for run in runs])) as deltas:
            async for delta in deltas:
                yield delta

    def _tokenized(self, job: TokenizeJob) -> TokenizeResult:
        prompt = self._prompts.read(job.prompt)
        before = () if prompt.is_whole or not job.adds_special else self._prefix
        return describe_tokens(self._tokenizer, (*before, *prompt.token_ids))

    async def _read(self, prompt: str | tuple[int, ...] | Chat, decoding: Decoding) -> Prompt:
        if isinstance(prompt, Chat):
            at_once = decoding.structure is not None
            return await asyncio.to_thread(self._prompts.read, prompt, at_once)
        return self._prompts.read(prompt)

    async def _runs(self, job: CompletionJob, prompts: Sequence[Prompt]) -> list[CompletionRun]:
        constraints = {
            ends_text: await self._structures.constraint(job.decoding, begins_text=ends_text)
            for ends_text in {prompt.ends_text for prompt in prompts}
        }
        return [
            run
            for number, prompt in enumerate(prompts)
            for run in self._requests.runs(job, number, prompt, constraints[prompt.ends_text])
        ]

    async def _complete(self, job: CompletionJob, run: CompletionRun) -> Deltas:
        completion = IncrementalCompletion(self._tokenizer, job, run, run.index)
        if run.request is None:
            yield completion.finish(FinishReason.LENGTH)
            return
        tokens = OutputTokens()
        async with aclosing(self._engine.generate(run.request)) as events:
            async for event in events:
                if isinstance(event, FinishedEvent):
                    for last in self._last_deltas(job, run, completion, event, len(tokens.ids)):
                        yield self._with_attention_maps(run, last, event.best.tokens, event)
                    return
                if not isinstance(event, TokenEvent):
                    raise_failure(event)
                if not completion.is_finished:
                    tokens.add(event)
                    delta = completion.push(event.token_id, event.logprob, event.top)
                    if delta is not None:
                        yield self._with_attention_maps(run, delta, tokens, None)
                if completion.is_finished and not run.has_others:
                    return

    def _with_attention_maps(
        self,
        run: CompletionRun,
        delta: CompletionDelta,
        tokens: OutputTokens,
        end: FinishedEvent | None,
    ) -> CompletionDelta:
        """Add the attention maps to the last delta of the run's best completion.

        end: None if a stop string ended the completion.
        """
        request = run.request
        is_last = delta.finish_reason is not None and delta.index == run.index
        if request is None or not request.attention_queries or not is_last:
            return delta
        given = request.prompt_ids if request.is_whole else self._prefix + request.prompt_ids
        pieces = self._tokenizer.pieces((*given, *tokens.ids))
        names = tuple(map(token_text, pieces))
        texts = TokenTexts(self._source_names, names[: len(given)], names[len(given) :])
        shapes = self._manifest.attention_shapes
        of_tokens = tokens.attention_pieces
        maps = attention_maps(request.attention_queries, shapes, of_tokens, end, texts)
        return replace(delta, attention_maps=maps)

    def _last_deltas(
        self,
        job: CompletionJob,
        run: CompletionRun,
        best: IncrementalCompletion,
        event: FinishedEvent,
        num_pushed: int,
    ) -> Iterator[CompletionDelta]:
        """Yield what is left. num_pushed: tokens that the best completion has got already."""
        if not best.is_finished:
            is_ranked = job.decoding.beam is not None
            yield from _deltas(best, event.best, num_pushed, is_ranked)
        if run.has_others:
            yield from self._other_hypotheses(job, run, event)

    def _other_hypotheses(
        self, job: CompletionJob, run: CompletionRun, event: FinishedEvent
    ) -> Iterator[CompletionDelta]:
        """Yield all but the best, each as one delta. Those that a search did not find have no
        text.
        """
        for number in range(1, job.num_choices):
            completion = IncrementalCompletion(self._tokenizer, job, run, run.index + number)
            if number < len(event.hypotheses):
                yield join_deltas(list(_deltas(completion, event.hypotheses[number])))
            else:
                yield completion.finish(event.reason)


def _deltas(
    completion: IncrementalCompletion,
    hypothesis: Hypothesis,
    num_pushed: int = 0,
    is_ranked: bool = True,
) -> Iterator[CompletionDelta]:
    for token in islice(hypothesis.tokens.iter_tokens(), num_pushed, None):
        if (delta := completion.push(*token)) is not None:
            yield delta
        if completion.is_finished:
            return
    score = hypothesis.score if is_ranked else None
    yield completion.finish(hypothesis.reason, hypothesis.stop_logprob, score, hypothesis.stop_id)


class Structures:
    """Compiles structures for the tokenizer of one bundle. A compiler is prepared on first use: one
    for outputs that begin a text and, where it makes a difference, one for outputs that continue a
    prompt.
    """

    def __init__(self, tokenizer: Tokenizer, stop_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = tuple(stop_ids)
        self._grammars: dict[bool, Grammars] = {}
        self._is_lossless = tokenizer.is_lossless

    async def constraint(self, decoding: Decoding, begins_text: bool) -> Constraint | None:
        """Return the constraint that a job's output must follow; None if it has no structure.

        Raises RequestError for a structure that does not compile.
        """
        structure, stop_ids = decoding.structure, decoding.stop_token_ids
        if structure is None:
            return None
        return await asyncio.to_thread(self._compiled, structure, stop_ids, begins_text)

    def _compiled(
        self, structure: Structure, stop_ids: tuple[int, ...], begins_text: bool
    ) -> Constraint:
        begins_text = begins_text and not self._is_lossless
        if begins_text not in self._grammars:
            prepared = Grammars(self._tokenizer, self._stop_ids, begins_text)
            self._grammars[begins_text] = prepared
        grammars, value = self._grammars[begins_text], structure.value
        options: dict[str, Any] = {"field": structure.field, "stop_ids": stop_ids}
        if structure.kind == "json_object":
            return grammars.json_object(**options)
        if isinstance(value, tuple):
            return grammars.choices(value, **options)
        compilers = {
            "json": grammars.json_schema,
            "regex": grammars.regex,
            "grammar": grammars.lark,
        }
        return compilers[structure.kind](value, **options)
