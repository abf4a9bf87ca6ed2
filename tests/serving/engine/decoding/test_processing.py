"""Tests what each processor does to scores, against Hugging Face's own."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig, GenerationMixin, PrefixConstrainedLogitsProcessor

from serving.bundle.manifest import NO_LOGITS_PROCESSORS, LogitsProcessors
from serving.engine.decoding.logits_processors import Processors
from serving.requests.parameters import BeamParams, ProcessorParams
from tests.serving.engine.decoding.editing import (
    SLOTS,
    STOPS,
    VOCAB_SIZE,
    advance,
    banned_of,
    edited_by,
    generation_of,
    model_processors,
    processor_params,
    random_scores,
    row_of,
    token,
)

history = st.lists(st.integers(0, 5) | token, max_size=12)


def hugging_face(
    params: ProcessorParams,
    prompt: list[int],
    generated: list[int],
    of_model: LogitsProcessors = NO_LOGITS_PROCESSORS,
    source: tuple[int, ...] = (),
) -> Any:
    """The processors of its `generate`, in its order: history and scores to scores."""
    decay = of_model.exponential_decay_length_penalty
    config = GenerationConfig(
        repetition_penalty=params.repetition_penalty,
        no_repeat_ngram_size=params.no_repeat_ngram_size,
        bad_words_ids=[list(w) for w in (*of_model.bad_words_ids, *params.bad_words)] or None,
        suppress_tokens=list(of_model.suppress_tokens) or None,
        begin_suppress_tokens=list(of_model.begin_suppress_tokens) or None,
        encoder_no_repeat_ngram_size=of_model.encoder_no_repeat_ngram_size,
        encoder_repetition_penalty=of_model.encoder_repetition_penalty,
        exponential_decay_length_penalty=decay and (decay.start, decay.factor),
        min_new_tokens=params.min_tokens,
        sequence_bias={(token_id,): bias for token_id, bias in params.logit_bias} or None,
    )
    config._eos_token_tensor = torch.tensor(sorted(STOPS))
    model: Any = SimpleNamespace(
        config=SimpleNamespace(is_encoder_decoder=True),
        _merge_criteria_processor_list=lambda default, custom: default,
    )
    processors = GenerationMixin._get_logits_processor(
        model, config, len(prompt), torch.tensor([source], dtype=torch.long)
    )
    if params.allowed_ids is not None:
        allowed = [*params.allowed_ids, *STOPS]
        processors.append(PrefixConstrainedLogitsProcessor(lambda batch, ids: allowed, 1))
    history = torch.tensor([prompt + generated])
    return lambda scores: processors(history, torch.tensor(scores)[None])[0].numpy()


@given(
    processor_params,
    st.just(NO_LOGITS_PROCESSORS) | model_processors,
    st.lists(token, min_size=1, max_size=8),
    history,
    history,
    history,
    st.booleans(),
    st.integers(0, 100),
)
@settings(max_examples=500)
def test_what_hugging_face_has_too_comes_out_as_it_has_it(
    params: ProcessorParams,
    of_model: LogitsProcessors,
    source: list[int],
    prompt: list[int],
    forced: list[int],
    generated: list[int],
    is_beam: bool,
    seed: int,
) -> None:
    beam = BeamParams(num_beams=2) if is_beam else None
    prompt = [0, *prompt]
    processors = Processors(SLOTS, VOCAB_SIZE)
    generation = generation_of(
        params,
        tuple(prompt),
        of_model,
        source_ids=tuple(source),
        forced_ids=tuple(forced),
        beam=beam,
    )
    processors.on_add(0, generation)
    advance(processors, *generated)
    scores = random_scores(1, seed)
    processors.edit(scores)
    if scores.edited is not None and scores.edited.is_dead[0]:
        return  # Hugging Face would take any token
    # Beam search gives its processors log-probabilities, sampling gives them logits.
    shift = 0 if is_beam else scores.log_normaliser[0]
    theirs = hugging_face(params, prompt + forced, generated, of_model, tuple(source))
    expected = theirs(scores.logp[0] + shift) - shift
    if scores.edited is not None and of_model.renormalize_logits and is_beam:
        expected = torch.from_numpy(expected).log_softmax(-1).numpy()
    np.testing.assert_allclose(row_of(scores, 0), expected, atol=2e-4, rtol=1e-5)


def test_each_processor_alone_as_hugging_face_has_it() -> None:
    prompt, generated = [0, 3, 4, 5, 3, 4], [7, 3, 4]
    for params in (
        ProcessorParams(repetition_penalty=1.7),
        ProcessorParams(no_repeat_ngram_size=3),
        ProcessorParams(no_repeat_ngram_size=1),
        ProcessorParams(logit_bias=((3, -2.0), (9, 50.0))),
        ProcessorParams(bad_words=((3, 4, 8), (11,), (2,), (9, 8))),
        ProcessorParams(min_tokens=4),
        ProcessorParams(allowed_ids=(5, 6)),
    ):
        scores = random_scores(1)
        logits = scores.logp[0] + scores.log_normaliser[0]
        expected = hugging_face(params, prompt, generated)(logits) - scores.log_normaliser[0]
        found = edited_by(params, tuple(generated), prompt=tuple(prompt))
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=str(params))
        assert not np.allclose(np.nan_to_num(found), np.nan_to_num(scores.logp[0]))


def test_presence_and_frequency_count_generated_tokens_only() -> None:
    params = ProcessorParams(presence_penalty=0.5, frequency_penalty=0.25)
    before = random_scores(1).logp[0]
    after = edited_by(params, (7, 8, 7, 7), prompt=(0, 9, 9), forced_ids=(10, 10))
    toll = np.zeros(VOCAB_SIZE)
    toll[7], toll[8] = 0.5 + 3 * 0.25, 0.5 + 0.25
    np.testing.assert_allclose(before - after, toll, atol=1e-6)


def test_the_order_is_bias_then_repetition_then_presence() -> None:
    params = ProcessorParams(
        logit_bias=((7, 30.0),), repetition_penalty=2.0, presence_penalty=1.5, frequency_penalty=0.5
    )
    scores = random_scores(1)
    logit = scores.logp[0, 7] + scores.log_normaliser[0]
    assert logit + 30 > 0
    expected = (logit + 30) / 2 - 1.5 - 0.5 - scores.log_normaliser[0]
    assert edited_by(params, (7,))[7] == pytest.approx(expected, abs=1e-5)


def test_an_ngram_may_begin_in_the_prompt() -> None:
    params = ProcessorParams(no_repeat_ngram_size=3)
    assert banned_of(edited_by(params, (5, 6, 4), prompt=(0, 3, 4), forced_ids=())) == set()
    assert banned_of(edited_by(params, (5, 6, 3, 4), prompt=(0, 3, 4))) == {5}
    assert banned_of(edited_by(params, (5, 3, 4), prompt=(0, 3), forced_ids=(4,))) == {5}


def test_a_bad_word_may_begin_in_the_prompt() -> None:
    params = ProcessorParams(bad_words=((3, 4, 5),))
    assert banned_of(edited_by(params, (4,), prompt=(0, 3))) == {5}
    assert banned_of(edited_by(params, (), prompt=(0, 3), forced_ids=(4,))) == {5}
    assert banned_of(edited_by(params, (4,), prompt=(0,))) == set()


def test_stop_tokens_are_banned_until_there_are_enough_generated_ones() -> None:
    params = ProcessorParams(min_tokens=2)
    assert banned_of(edited_by(params, (), prompt=(0, 3, 3, 3), forced_ids=(4, 4))) == STOPS
    assert banned_of(edited_by(params, (5,))) == STOPS
    assert banned_of(edited_by(params, (5, 5))) == set()


def test_allowed_tokens_and_stop_tokens_are_all_that_may_come() -> None:
    banned = banned_of(edited_by(ProcessorParams(allowed_ids=(5, 9))))
    assert set(range(VOCAB_SIZE)) - banned == {5, 9} | STOPS
