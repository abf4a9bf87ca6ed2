"""Decodes one window: at higher and higher temperatures while its text is not good enough.

As in openai/whisper, `decode_with_fallback` of transcribe.py (Radford et al. 2022, section 4.5).
"""

import hashlib
import math
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from serving.bundle.manifest import AttentionKind, Manifest
from serving.pipelines.decoding import EnginePort, request_arguments, require_finished
from serving.pipelines.transcription.job import TranscriptionJob
from serving.requests.parameters import TimestampRules, TokenIds
from serving.requests.request import (
    AttentionPieces,
    AttentionQuery,
    Audio,
    FinishedEvent,
    GenerationRequest,
    Hypothesis,
)
from serving.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Window:
    """Sound to decode, and the tokens that its transcript begins with.

    start: sample of the recording at which it begins.
    """

    audio: Audio
    start: int
    prompt_ids: TokenIds
    forced_ids: TokenIds


@dataclass(frozen=True, slots=True)
class DecodedWindow:
    """What a model writes about a window.

    token_ids, logprobs: with timestamps, without the tokens that were forced.
    mean_logprob, compression_ratio, no_speech: see `TranscriptionJob` for the thresholds on them.
    attention: of the step that chose each token, and of the step that chose the end if one did;
        empty unless it was asked for.
    num_generated_tokens: of all temperatures and samples.
    """

    token_ids: TokenIds
    logprobs: tuple[float, ...]
    text: str
    temperature: float
    mean_logprob: float
    no_speech: float
    num_generated_tokens: int
    attention: tuple[AttentionPieces, ...] = field(default=(), repr=False)

    @property
    def compression_ratio(self) -> float:
        """Return how many times longer its text is than what zlib makes of it."""
        text = self.text.encode()
        return len(text) / len(zlib.compress(text))

    def is_silence(self, job: TranscriptionJob) -> bool:
        """Return whether nobody speaks: it is improbable that anybody does, and what."""
        if job.no_speech_threshold is None or self.no_speech <= job.no_speech_threshold:
            return False
        return job.logprob_threshold is None or self.mean_logprob <= job.logprob_threshold

    def needs_fallback(self, job: TranscriptionJob) -> bool:
        """Return whether the text is repetitive or improbable, but for silence."""
        limit, lowest = job.compression_ratio_threshold, job.logprob_threshold
        is_improbable = lowest is not None and self.mean_logprob < lowest
        if is_improbable and self.is_silence(job):
            return False
        return is_improbable or (limit is not None and self.compression_ratio > limit)


@dataclass(slots=True)
class JobProgress:
    """What a job has asked of the engine.

    accepted_at: when its first requests were submitted; None before. Later ones are not refused.
    num_input_tokens: of all requests that have ended: positions of windows, and prompts.
    """

    accepted_at: float | None = None
    num_input_tokens: int = 0


class WindowDecoder:
    """Decodes windows of one model."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, engine: EnginePort) -> None:
        assert manifest.audio is not None, "a model that transcribes reads sound"
        self._manifest, self._audio = manifest, manifest.audio
        self._tokenizer, self._engine = tokenizer, engine
        self._max_tokens = manifest.limits.max_target_tokens
        self._first_special = manifest.tokens.eos  # ids of text are lower
        self._timestamp_rules = TimestampRules(
            manifest.tokens.eos,
            self._audio.no_timestamps,
            self._audio.first_timestamp,
            round(self._audio.max_initial_timestamp / self._audio.timestamp_step),
        )

    async def identify_language(
        self, job: TranscriptionJob, audio: Audio, progress: JobProgress
    ) -> tuple[str, float]:
        """Return the language that is likeliest spoken in a window, and its probability among all
        languages of the model.
        """
        request = GenerationRequest(
            f"{job.request_id}-language",
            audio=audio,
            prompt_ids=(self._audio.start,),
            is_whole=True,
            scored_ids=tuple(self._audio.languages.values()),
            max_new_tokens=1,
            **self._arguments_of_job(job) | {"beam": None},
        )
        [event] = await self._run([request], progress)
        logprobs = np.array(event.scored_logprobs)
        probabilities = np.exp(logprobs - np.logaddexp.reduce(logprobs))
        best = int(probabilities.argmax())
        return [*self._audio.languages][best], float(probabilities[best])

    async def decode(
        self, job: TranscriptionJob, window: Window, progress: JobProgress
    ) -> DecodedWindow:
        """Return the text at the first temperature at which it is good enough, or at the last."""
        num_generated = 0
        for temperature in job.temperatures:
            events = await self._run(self._requests(job, window, temperature), progress)
            num_generated += sum(event.num_generated_tokens for event in events)
            best = max(events, key=lambda event: _mean_logprob(event.best, window, 0))
            decoded = self._describe(best, window, temperature, num_generated)
            if not decoded.needs_fallback(job):
                break
        return decoded

    async def _run(
        self, requests: Sequence[GenerationRequest], progress: JobProgress
    ) -> list[FinishedEvent]:
        requests = [replace(request, job_accepted_at=progress.accepted_at) for request in requests]
        progress.accepted_at = progress.accepted_at or time.perf_counter()
        events = [require_finished(event) for event in await self._engine.run(requests)]
        progress.num_input_tokens += sum(
            event.num_source_tokens + event.num_prompt_tokens for event in events
        )
        return events

    def _requests(
        self, job: TranscriptionJob, window: Window, temperature: float
    ) -> list[GenerationRequest]:
        """Return the request for a window, or above temperature 0 one for each sample."""
        num_given = len(window.prompt_ids) + len(window.forced_ids)
        # As in openai/whisper: at most half of the context is written.
        limit = min(
            job.decoding.max_new_tokens or self._max_tokens // 2, self._max_tokens - num_given
        )
        request = GenerationRequest(
            f"{job.request_id}-{window.start}-{temperature:g}",
            audio=window.audio,
            prompt_ids=window.prompt_ids,
            is_whole=True,
            forced_ids=window.forced_ids,
            scored_ids=(self._audio.no_speech,),
            max_new_tokens=limit,
            attention_queries=self._attention_queries if job.returns_words else (),
            **self._arguments_of_job(job),
        )
        if temperature == 0:
            return [request]
        return [
            replace(
                request,
                request_id=f"{request.request_id}-{number}",
                beam=None,
                sampling=replace(
                    job.decoding.sampling,
                    temperature=temperature,
                    seed=_derive_seed(job, window.start, temperature, number),
                ),
            )
            for number in range(job.num_samples)
        ]

    def _arguments_of_job(self, job: TranscriptionJob) -> dict[str, Any]:
        """Return what all requests of a job share."""
        arguments = request_arguments(job.decoding, self._tokenizer) | {"job_id": job.request_id}
        rules = self._timestamp_rules if job.has_timestamps else None
        # The thresholds on log-probabilities are for those after the rules, as published.
        processors = replace(arguments["processors"], timestamps=rules, renormalizes=True)
        return arguments | {"processors": processors}

    @cached_property
    def _attention_queries(self) -> tuple[AttentionQuery, ...]:
        """Return a query for the alignment heads of each layer; without alignment heads all heads
        of the second half of the layers, as in openai/whisper.
        """
        shape = self._manifest.attention_shapes[AttentionKind.CROSS]
        heads = self._manifest.alignment_heads
        if not heads:
            heads = tuple(range(shape.num_layers // 2 * shape.num_heads, shape.num_maps))
        places = sorted(divmod(head, shape.num_heads) for head in heads)
        return tuple(
            AttentionQuery(AttentionKind.CROSS, (layer,), tuple(head for _, head in group))
            for layer, group in groupby(places, key=lambda place: place[0])
        )

    def _describe(
        self, event: FinishedEvent, window: Window, temperature: float, num_generated: int
    ) -> DecodedWindow:
        best, num_forced = event.best, len(window.forced_ids)
        token_ids = tuple(best.tokens.ids[num_forced:])
        text_ids = [token_id for token_id in token_ids if token_id < self._first_special]
        attention = best.tokens.attention_pieces[num_forced:]
        if attention and best.stop_id is not None:
            attention = [*attention, event.attention_pieces]
        return DecodedWindow(
            token_ids,
            tuple(best.tokens.logprobs[num_forced:]),
            self._tokenizer.decode(text_ids).strip(),
            temperature,
            _mean_logprob(best, window, 1),
            math.exp(event.scored_logprobs[0]),
            num_generated,
            tuple(attention),
        )


def _mean_logprob(hypothesis: Hypothesis, window: Window, num_ends: int) -> float:
    """Return the log-probability of what was generated, its end included, by the number of its
    tokens. In openai/whisper the end counts as a token of the mean that is compared with the
    threshold (`num_ends` 1), but not where the best sample is chosen.
    """
    logprobs = hypothesis.logprobs[len(window.forced_ids) :]
    num_tokens = len(hypothesis.tokens.ids) - len(window.forced_ids)
    return sum(logprobs) / max(num_tokens + num_ends, 1)


def _derive_seed(job: TranscriptionJob, start: int, temperature: float, number: int) -> int:
    """Return the seed of a sample, which follows from the job alone."""
    text = f"{job.decoding.sampling.seed or 0} {start} {temperature:g} {number}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
