"""Validation of requests: what a bundle supports."""

import secrets

import numpy as np

from serving.bundle.manifest import FEATURES, PIXELS, AttentionKind, Manifest, TensorSpec
from serving.engine.arrays import bytes_per_row
from serving.engine.attention_query import (
    Extent,
    HeadSelection,
    resolve_queries,
    select_alignment_heads,
    tokens_at_once,
)
from serving.engine.generation import Generation
from serving.engine.states.store import max_source_tokens
from serving.errors import RequestError, TooManyTokens
from serving.requests.parameters import BeamParams, TimestampRules, TokenIds
from serving.requests.request import GenerationRequest, Ids, Media

_NOUNS = {"picture": ("a picture", "pictures"), "audio": ("sound", "sound")}  # of one, and of many


def named_ids(request: GenerationRequest) -> set[int]:
    """Return the tokens that a request forces, prefers or asks the scores of."""
    processors = request.processors
    ids = {*request.forced_ids, *request.scored_ids, *(processors.allowed_ids or ())}
    ids.update(token_id for token_id, bias in processors.logit_bias if bias > 0)
    return ids


class RequestValidator:
    """Makes a generation of a request, or raises RequestError."""

    def __init__(
        self,
        manifest: Manifest,
        slots: int,
        timeout_seconds: float | None = None,
        prefill_chunk: int = 1,
    ) -> None:
        """timeout_seconds: timeout of requests without their own.
        prefill_chunk: number of prompt tokens that the graph reads in one run.
        """
        self._manifest = manifest
        self._num_at_once = tokens_at_once(manifest, prefill_chunk)
        self._slots, self._timeout_seconds = slots, timeout_seconds
        self._has_encoder = "encode" in manifest.graphs
        self._max_source_tokens = max_source_tokens(manifest)
        self._max_target_tokens = manifest.limits.max_target_tokens
        self._prompt_prefix = tuple(manifest.tokens.prompt_prefix)
        self._stop_ids = frozenset(manifest.tokens.stop)
        self._last_id = manifest.tokens.forced_eos
        self._vocab_size = manifest.vocab_size
        self._source_vocab_size = manifest.source_vocab_size or manifest.vocab_size
        self._has_shortlist, self._window = manifest.has_shortlist, manifest.window

    def accept(self, request: GenerationRequest, now: float) -> Generation:
        """Return a generation. `max_new_tokens` is reduced to the bundle's limit: the generation
        then ends by length.
        """
        self._check_source(request)
        self._check_target_ids(request)
        if request.num_rows > self._slots:
            message = f"must be at most {self._slots}, the rows of one batch here"
            raise RequestError("num_beams", request.num_rows, message)

        prompt_ids = request.prompt_ids
        if not request.is_whole:
            prompt_ids = self._prompt_prefix + prompt_ids
        if not prompt_ids:
            raise RequestError("prompt_ids", request.prompt_ids, "must not be empty")
        num_prefix_tokens = len(prompt_ids) + len(request.forced_ids)
        room = self._max_target_tokens - num_prefix_tokens
        if room < (0 if request.max_new_tokens == 0 else 1):
            field = "forced_ids" if request.forced_ids else "prompt_ids"
            message = f"too many tokens: at most {self._max_target_tokens - 1} fit"
            raise TooManyTokens(field, num_prefix_tokens, message)
        max_new_tokens = room
        if request.max_new_tokens is not None:
            max_new_tokens = min(request.max_new_tokens, room)

        own_stop_ids = frozenset(request.stop_token_ids)
        stop_ids = own_stop_ids if request.ignore_eos else own_stop_ids | self._stop_ids
        sampling, seed = request.sampling, 0
        if not sampling.is_greedy:
            seed = secrets.randbits(64) if sampling.seed is None else sampling.seed % 2**64
        shortlist = request.shortlist
        if shortlist is not None:
            shortlist = self._extend_shortlist(shortlist, request, stop_ids)
        selections: tuple[HeadSelection, ...] = ()
        if request.attention_queries:
            selections = self._select_heads(request, num_prefix_tokens + max_new_tokens)
        alignment = None
        if request.alignment_heads is not None:
            alignment = select_alignment_heads(request.alignment_heads, self._manifest)
        elif request.beam is not None and request.beam.coverage_penalty:
            alignment = self._select_coverage_heads(request.beam)
        return Generation(
            request,
            prompt_ids,
            max_new_tokens=max_new_tokens,
            stop_ids=stop_ids,
            has_own_stops=bool(own_stop_ids) or request.ignore_eos,
            seed=seed,
            submitted_at=now,
            deadline=self._deadline(request, now),
            shortlist=shortlist,
            last_id=None if request.ignore_eos else self._last_id,
            model_processors=self._manifest.logits_processors,
            selections=selections,
            alignment=alignment,
        )

    def _deadline(self, request: GenerationRequest, now: float) -> float | None:
        timeout = request.timeout_seconds or self._timeout_seconds
        started = now if request.job_accepted_at is None else request.job_accepted_at
        return None if timeout is None else started + timeout

    def _select_heads(
        self, request: GenerationRequest, num_target: int
    ) -> tuple[HeadSelection, ...]:
        """Return the heads of a request's attention queries. Raises RequestError if they have too
        many weights.
        """
        selections = resolve_queries(request.attention_queries, self._manifest)
        extent = Extent(len(request.source), num_target, self._num_at_once)
        extent.check(selections, self._manifest.attention_shapes)
        return selections

    def _select_coverage_heads(self, beam: BeamParams) -> HeadSelection:
        """Return the heads that a coverage penalty reads."""
        if not self._manifest.num_attention_heads:
            message = "this model has no attention over its source"
            raise RequestError("coverage_penalty", beam.coverage_penalty, message)
        return select_alignment_heads((), self._manifest)

    def _extend_shortlist(
        self, shortlist: Ids, request: GenerationRequest, stop_ids: frozenset[int]
    ) -> Ids | None:
        """Return the tokens to score: the request's shortlist and all tokens that the request
        names, at least as many as the window has; with a grammar the whole vocabulary.
        """
        self._check_shortlist(shortlist)
        if request.constraint is not None:
            return None
        required_ids = np.array(sorted(stop_ids | named_ids(request)), np.int64)
        places = np.minimum(np.searchsorted(shortlist, required_ids), len(shortlist) - 1)
        if (shortlist[places] != required_ids).any():
            shortlist = np.union1d(shortlist, required_ids)
        if len(shortlist) < self._window:
            shortlist = np.union1d(shortlist, np.arange(self._window))
        return shortlist

    def _check_shortlist(self, shortlist: Ids) -> None:
        if not self._has_shortlist:
            message = "this model scores its whole vocabulary"
            raise RequestError("shortlist", len(shortlist), message)
        if not len(shortlist) or (np.diff(shortlist) <= 0).any():
            raise RequestError("shortlist", len(shortlist), "must be ascending and not empty")
        self._check_ids("shortlist", (int(shortlist[0]), int(shortlist[-1])), self._vocab_size)

    def _check_source(self, request: GenerationRequest) -> None:
        source_ids, media_input = request.source_ids, self._manifest.media_input
        for name, field, media in (
            (PIXELS, "picture", request.picture),
            (FEATURES, "audio", request.audio),
        ):
            if media_input is not None and media_input.name == name:
                self._check_media(field, media, media_input)
            elif media is not None:
                message = f"this model reads no {_NOUNS[field][1]}"
                raise RequestError(field, len(media.content), message)
        if not self._has_encoder or media_input is not None:
            if source_ids is not None:
                raise RequestError("source_ids", len(source_ids), "this model takes no source")
            return
        if not source_ids:
            raise RequestError("source_ids", source_ids, "this model needs a source")
        if len(source_ids) > self._max_source_tokens:
            message = f"too many tokens: at most {self._max_source_tokens} fit"
            raise TooManyTokens("source_ids", len(source_ids), message)
        self._check_ids("source_ids", source_ids, self._source_vocab_size)

    def _check_media(self, field: str, media: Media | None, spec: TensorSpec) -> None:
        if media is None:
            raise RequestError(field, None, f"this model needs {_NOUNS[field][0]}")
        num_bytes, num_positions = len(media.content), self._max_source_tokens
        if num_bytes != bytes_per_row(spec) or len(media) != num_positions:
            shape = " x ".join(map(str, spec.shape[1:]))
            message = f"must have {shape} {spec.name} ({spec.dtype}) and {num_positions} positions"
            raise RequestError(field, num_bytes, message)

    def _check_target_ids(self, request: GenerationRequest) -> None:
        processors = request.processors
        for name, token_ids in (
            ("prompt_ids", request.prompt_ids),
            ("forced_ids", request.forced_ids),
            ("scored_ids", request.scored_ids),
            ("stop_token_ids", request.stop_token_ids),
            ("logit_bias", tuple(token_id for token_id, _ in processors.logit_bias)),
            ("allowed_ids", processors.allowed_ids),
            *(("bad_words", word) for word in processors.bad_words),
            ("timestamps", _ids_of_timestamps(processors.timestamps)),
        ):
            if token_ids:
                self._check_ids(name, token_ids, self._vocab_size)

    def _check_ids(self, name: str, ids: TokenIds, vocab_size: int) -> None:
        if not 0 <= min(ids) <= max(ids) < vocab_size:
            unknown_id = next(token_id for token_id in ids if not 0 <= token_id < vocab_size)
            message = f"no such token: ids go from 0 to {vocab_size - 1}"
            raise RequestError(name, unknown_id, message)


def _ids_of_timestamps(rules: TimestampRules | None) -> TokenIds:
    if rules is None:
        return ()
    last_initial = rules.first_id + (rules.max_initial_index or 0)
    return rules.end_id, rules.no_timestamps_id, rules.first_id, last_initial


class EncodingRequestValidator(RequestValidator):
    """Makes generations for bundles that only encode."""

    def accept(self, request: GenerationRequest, now: float) -> Generation:
        """Return a generation. Raises RequestError."""
        self._check_source(request)
        if request.prompt_ids or request.forced_ids or request.beam is not None:
            message = "this model only encodes: it takes a source alone"
            raise RequestError("prompt_ids", request.prompt_ids, message)
        start = request.pair_start
        if start is not None and not 0 < start < len(request.source_ids or ()):
            raise RequestError("pair_start", start, "must be inside the source")
        return Generation(
            request,
            prompt_ids=(),
            max_new_tokens=0,
            stop_ids=frozenset(),
            has_own_stops=False,
            seed=0,
            submitted_at=now,
            deadline=self._deadline(request, now),
            selections=self._select_heads(request, self._num_hops()),
        )

    def _num_hops(self) -> int:
        """Return the number of attention hops, which replace target positions."""
        spec = self._manifest.attention_output(AttentionKind.HOPS)
        return int(spec.shape[2]) if spec else 0
