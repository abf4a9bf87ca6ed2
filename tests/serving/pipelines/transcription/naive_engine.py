"""Whisper by transformers, one token after another: an engine for pipelines, and a reference whose
rules are written as plain loops.
"""

import math
from collections.abc import AsyncGenerator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import WhisperForConditionalGeneration

from serving.bundle.manifest import AudioSpec
from serving.requests.parameters import SamplingParams, TokenIds
from serving.requests.request import (
    Event,
    FinalEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    OutputTokens,
    TokenEvent,
)


class NaiveWhisper:
    """A checkpoint of transformers, with the rules by which tokens are chosen."""

    def __init__(self, folder: Path, audio: AudioSpec) -> None:
        self.model = WhisperForConditionalGeneration.from_pretrained(
            folder, attn_implementation="eager"
        ).eval()
        self.audio = audio
        settings = self.model.generation_config
        self.eos = settings.eos_token_id
        self.suppressed = settings.suppress_tokens or []
        self.suppressed_first = settings.begin_suppress_tokens or []
        self.encode = cache(self._encode)

    def _encode(self, features: bytes) -> torch.Tensor:
        array = np.frombuffer(features, np.float32).reshape(1, self.audio.num_mels, -1)
        with torch.no_grad():
            return self.model.model.encoder(torch.tensor(array)).last_hidden_state

    @torch.no_grad()
    def step(self, features: bytes, ids: Sequence[int], past: Any) -> tuple[Any, Any, Any]:
        """Return log-probabilities f64 [ids, vocabulary], cross-attention [layers, heads, ids,
        positions], and the cache.
        """
        out = self.model.model.decoder(
            input_ids=torch.tensor([ids]),
            encoder_hidden_states=self.encode(features),
            past_key_values=past,
            use_cache=True,
            output_attentions=True,
        )
        logits = self.model.proj_out(out.last_hidden_state)[0].double()
        attention = torch.stack([layer[0] for layer in out.cross_attentions])
        return logits.log_softmax(-1).numpy(), attention.numpy(), out.past_key_values

    def allow(self, logp: np.ndarray, written: Sequence[int], has_timestamps: bool) -> np.ndarray:
        """Return the scores after the filters of openai/whisper, decoding.py."""
        logp = logp.copy()
        first_time, audio = self.audio.first_timestamp, self.audio
        logp[self.suppressed] = -np.inf
        if not written:
            logp[self.suppressed_first] = -np.inf
        if not has_timestamps:
            return logp
        logp[audio.no_timestamps] = -np.inf
        last_is_time = len(written) >= 1 and written[-1] >= first_time
        penultimate_is_time = len(written) < 2 or written[-2] >= first_time
        if last_is_time:
            if penultimate_is_time:
                logp[first_time:] = -np.inf
            else:
                logp[: self.eos] = -np.inf
        times = [token_id for token_id in written if token_id >= first_time]
        if times:
            least = times[-1] if last_is_time and not penultimate_is_time else times[-1] + 1
            logp[first_time:least] = -np.inf
        if not written:
            logp[:first_time] = -np.inf
            latest = first_time + round(audio.max_initial_timestamp / audio.timestamp_step)
            logp[latest + 1 :] = -np.inf
        total = np.logaddexp.reduce(logp[first_time:])
        if total > logp[:first_time].max():
            logp[:first_time] = -np.inf
        return logp


class NaiveEngine:
    """Runs one request after another."""

    max_rows = 8

    def __init__(self, whisper: NaiveWhisper) -> None:
        self.whisper = whisper
        self.requests: list[GenerationRequest] = []

    def check_room(self, work: int, share: str, priority: int) -> None:
        pass

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        yield self._finish(request)

    async def stream(
        self, requests: Sequence[GenerationRequest]
    ) -> AsyncGenerator[list[Event], None]:
        for request in requests:
            yield [self._finish(request)]

    async def run(self, requests: Sequence[GenerationRequest]) -> list[FinalEvent]:
        return [self._finish(request) for request in requests]

    def _finish(self, request: GenerationRequest) -> FinishedEvent:
        assert request.audio is not None and request.max_new_tokens is not None
        self.requests.append(request)
        whisper, features = self.whisper, request.audio.features
        tokens, stop_logprob = OutputTokens(), None
        ids: TokenIds = request.prompt_ids
        scored: tuple[float, ...] = ()
        past, end_pieces = None, ()
        random = np.random.default_rng(request.sampling.seed)
        written: list[int] = []
        while True:
            logp, attention, past = whisper.step(features, ids, past)
            pieces = _select(request, attention)
            if not scored:
                scored = tuple(float(logp[-1][token_id]) for token_id in request.scored_ids)
            if len(tokens) < len(request.forced_ids):
                token_id = request.forced_ids[len(tokens)]
            elif len(written) == request.max_new_tokens:
                break
            else:
                has_times = whisper.audio.no_timestamps not in request.forced_ids
                allowed = whisper.allow(logp[-1], written, has_times)
                token_id = _choose(allowed, request.sampling, random)
                if token_id == whisper.eos:
                    stop_logprob, end_pieces = float(logp[-1][token_id]), pieces
                    break
                written.append(token_id)
            event = TokenEvent(
                request.request_id, token_id, float(logp[-1][token_id]), attention_pieces=pieces
            )
            tokens.add(event)
            ids = (token_id,)
        reason = FinishReason.LENGTH if stop_logprob is None else FinishReason.STOP
        stop_id = None if stop_logprob is None else whisper.eos
        best = Hypothesis(tokens, 0.0, reason, stop_logprob, stop_id)
        return FinishedEvent(
            request.request_id,
            (best,),
            request.audio.num_positions,
            len(request.prompt_ids) + len(request.forced_ids),
            len(written) + (stop_id is not None),
            attention_pieces=end_pieces,
            scored_logprobs=scored,
        )


def _select(request: GenerationRequest, attention: np.ndarray) -> Any:
    """Return the weights of the last token that was read, for each query."""
    return tuple(
        (attention[list(query.layers)][:, list(query.heads), -1:],)
        for query in request.attention_queries
    )


def _choose(logp: np.ndarray, sampling: SamplingParams, random: np.random.Generator) -> int:
    if sampling.temperature == 0:
        return int(logp.argmax())
    scores = logp / sampling.temperature
    weights = np.exp(scores - scores.max())
    return int(random.choice(len(weights), p=weights / weights.sum()))


def mean_logprob(logprobs: Sequence[float], num_tokens: int) -> float:
    return math.fsum(logprobs) / (num_tokens + 1)
