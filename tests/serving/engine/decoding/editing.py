"""Helpers that let processors edit random scores."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from serving.bundle.manifest import NO_LOGITS_PROCESSORS, LengthDecay, LogitsProcessors
from serving.engine.arrays import Array
from serving.engine.decoding.logits_processors import Processors
from serving.engine.decoding.scores import Edited, Scores
from serving.engine.generation import Generation
from serving.engine.rows import Decision
from serving.requests.parameters import ProcessorParams
from serving.requests.request import GenerationRequest

VOCAB_SIZE, SLOTS = 24, 4
STOPS = frozenset({1, 2})


def generation_of(
    params: ProcessorParams,
    prompt: tuple[int, ...] = (0,),
    model_processors: LogitsProcessors = NO_LOGITS_PROCESSORS,
    **request: Any,
) -> Generation:
    return Generation(
        request=GenerationRequest("r", processors=params, **request),
        prompt_ids=prompt,
        max_new_tokens=100,
        seed=0,
        stop_ids=STOPS,
        has_own_stops=False,
        submitted_at=0.0,
        deadline=None,
        model_processors=model_processors,
    )


def scores_of(logits: Array) -> Scores:
    """Return what the graph says of rows with these logits."""
    normaliser = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    logp = (logits - normaliser[:, None]).astype(np.float32)
    order = np.argsort(-logp, axis=1)[:, :4]
    top = np.take_along_axis(logp, order, axis=1)
    return Scores(logp, top, order, normaliser.astype(np.float32))


def random_scores(num_rows: int, seed: int = 0) -> Scores:
    random = np.random.default_rng(seed)
    return scores_of(random.normal(0, 3, (num_rows, VOCAB_SIZE)).astype(np.float32))


def edited_by(params: ProcessorParams, generated: tuple[int, ...] = (), **generation: Any) -> Array:
    """Log-probabilities of the one row after an edit of random ones, as they were if not edited."""
    processors = Processors(SLOTS, VOCAB_SIZE)
    processors.on_add(0, generation_of(params, **generation))
    advance(processors, *generated)
    scores = random_scores(1)
    processors.edit(scores)
    return row_of(scores, 0)


def row_of(scores: Scores, row: int) -> Array:
    edited = scores.edited
    return (edited.logp if edited and edited.is_edited[row] else scores.logp)[row].copy()


def advance(processors: Processors, *token_ids: int) -> None:
    for token_id in token_ids:
        processors.on_step(taking(*[token_id] * SLOTS))


def taking(*token_ids: int, is_forced: bool = False) -> Decision:
    """Every row takes its token."""
    count = len(token_ids)
    return Decision(np.array(token_ids), np.full(count, is_forced))


def banned_of(logp: Array) -> set[int]:
    return set(np.flatnonzero(np.isneginf(logp)).tolist())


def edit(processors: Processors, scores: Scores) -> Edited:
    processors.edit(scores)
    assert scores.edited is not None
    return scores.edited


token = st.integers(0, VOCAB_SIZE - 1)
processor_params = st.builds(
    ProcessorParams,
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    no_repeat_ngram_size=st.integers(0, 4),
    logit_bias=st.dictionaries(token, st.sampled_from([-100.0, -2.0, 0.5, 4.0]), max_size=4).map(
        lambda biases: tuple(biases.items())
    ),
    bad_words=st.lists(st.lists(st.integers(0, 5) | token, min_size=1, max_size=3).map(tuple)).map(
        tuple
    ),
    allowed_ids=st.none() | st.lists(token, min_size=1, max_size=20).map(tuple),
    min_tokens=st.integers(0, 8),
)
model_processors = st.builds(
    LogitsProcessors,
    bad_words_ids=st.lists(
        st.lists(st.integers(0, 5) | token, min_size=1, max_size=3).map(tuple), max_size=4
    ).map(tuple),
    suppress_tokens=st.lists(token, max_size=4).map(tuple),
    begin_suppress_tokens=st.lists(token, max_size=4).map(tuple),
    encoder_no_repeat_ngram_size=st.integers(0, 3),
    encoder_repetition_penalty=st.sampled_from([1.0, 1.0, 1.5, 0.7]),
    exponential_decay_length_penalty=st.none()
    | st.builds(LengthDecay, st.integers(-1, 4), st.sampled_from([1.1, 2.0])),
    renormalize_logits=st.booleans(),
)
