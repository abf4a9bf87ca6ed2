"""Tests that what a device does to scores is what the host does, to the bit."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from export.graph.choice import select_graph
from serving.bundle.manifest import NO_LOGITS_PROCESSORS, LengthDecay, LogitsProcessors
from serving.engine.arrays import Array
from serving.engine.cuda.device_sampler import EDITS, can_choose, is_plain, row_edits, write_edits
from serving.engine.decoding.logits_processors import Processors
from serving.engine.decoding.scores import Scores
from serving.requests.parameters import ProcessorParams
from tests.export.sessions import session_of
from tests.serving.engine.decoding.editing import (
    SLOTS,
    VOCAB_SIZE,
    generation_of,
    model_processors,
    random_scores,
    taking,
)

STOP = 1
EXCLUDED = np.array([4, 9, 17])

tokens = st.integers(0, VOCAB_SIZE - 1)
processor_params = st.builds(
    ProcessorParams,
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.7, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    no_repeat_ngram_size=st.sampled_from([0, 1, 2]),
    min_tokens=st.integers(0, 4),
    logit_bias=st.dictionaries(tokens, st.floats(-5, 5), max_size=6).map(lambda d: (*d.items(),)),
    bad_words=st.lists(st.tuples(tokens) | st.tuples(tokens, tokens), max_size=4).map(tuple),
)
on_device = model_processors.map(lambda each: replace(each, exponential_decay_length_penalty=None))


@settings(max_examples=150)
@given(
    params=st.lists(processor_params, min_size=SLOTS, max_size=SLOTS),
    of_model=st.just(NO_LOGITS_PROCESSORS) | on_device,
    prompt=st.lists(tokens, min_size=1, max_size=6).map(tuple),
    generated=st.lists(st.lists(tokens, min_size=SLOTS, max_size=SLOTS), max_size=5),
    has_exclusions=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_likeliest_token_and_dead_rows_are_those_of_the_host(
    params: list[ProcessorParams],
    of_model: LogitsProcessors,
    prompt: tuple[int, ...],
    generated: list[list[int]],
    has_exclusions: bool,
    seed: int,
) -> None:
    is_excluded = np.zeros(VOCAB_SIZE, bool)
    is_excluded[EXCLUDED] = has_exclusions
    processors = Processors(SLOTS, VOCAB_SIZE)
    for row, row_params in enumerate(params):
        processors.on_add(row, generation_of(row_params, prompt, of_model))
    for token_ids in generated:
        processors.on_step(taking(*token_ids))
    scores = random_scores(SLOTS, seed)
    found = chosen_by_device(processors, scores, is_excluded)
    if has_exclusions:
        scores.exclude(EXCLUDED)
    processors.edit(scores)
    logp = scores.logp.copy()
    if scores.edited is not None:
        logp[scores.edited.is_edited] = scores.edited.logp[scores.edited.is_edited]
    is_dead = np.isneginf(logp.max(axis=1))
    assert found["is_dead"].tolist() == is_dead.tolist()
    assert (found["token_ids"] == logp.argmax(axis=1))[~is_dead].all()


def chosen_by_device(
    processors: Processors, scores: Scores, is_excluded: Array
) -> dict[str, Array]:
    """Return those of greedy rows."""
    edits = {row: row_edits(output, is_excluded) for row, output in processors.rows.items()}
    edits = {row: output for row, output in edits.items() if len(output.token_ids)}
    width = max((len(output.token_ids) for output in edits.values()), default=1) + 2
    arrays = {name: np.zeros((SLOTS, width), dtype) for name, dtype in EDITS.items()}
    write_edits(edits, STOP, arrays)
    inputs: dict[str, Any] = {
        "logp": scores.scored.copy(),
        "log_normaliser": scores.log_normaliser,
        "is_excluded": is_excluded,
        "uniform": np.zeros(SLOTS),
        "exponent": np.ones(SLOTS, np.float32),
        "top_k": np.ones(SLOTS, np.int64),
        "top_p": np.ones(SLOTS),
        "min_p": np.zeros(SLOTS, np.float32),
    }
    outputs = SESSION.run(None, inputs | arrays)
    return dict(zip((output.name for output in SESSION.get_outputs()), outputs, strict=True))


def test_what_changes_by_the_scores_themselves_is_left_to_the_host() -> None:
    words = LogitsProcessors(bad_words_ids=((4,),), suppress_tokens=(5,))
    decay = LogitsProcessors(exponential_decay_length_penalty=LengthDecay(2, 1.5))
    normalised = LogitsProcessors(renormalize_logits=True)
    generations = [
        generation_of(ProcessorParams(), model_processors=params)
        for params in (words, decay, normalised)
    ]
    assert [can_choose(params, VOCAB_SIZE) for params in generations] == [True, False, True]
    assert [is_plain(params) for params in generations] == [False, False, True]


SESSION = session_of(select_graph(VOCAB_SIZE))
