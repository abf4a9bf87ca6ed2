"""Rows whose tokens loop end early, and no others."""

from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.decoding.repetition import loop_start
from serving.engine.decoding.stop_checker import LOOP_CHECK_TOKENS
from serving.engine.engine import Engine
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import FinishedEvent, FinishReason, GenerationRequest
from tests.serving.engine.driving import Story, run_all
from tests.tiny import tiny_bundle

MOST = 47
SOURCES = [tuple(range(3 + number, 6 + 2 * number)) for number in range(10)]
REPETITIVE = [(*(5, 6) * 12, 7), (*(8, 9, 10) * 9, 3)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tiny_bundle("transformer", tmp_path_factory.mktemp("loops"), Precision.FP32)
    return open_bundle(folder)


def run(bundle: Bundle, slots: int = 4, **options: Any) -> dict[str, Story]:
    engine = Engine(bundle, EngineConfig(slots=slots, threads=1))
    requests = [
        GenerationRequest(f"{number}", source, ignore_eos=True, max_new_tokens=MOST, **options)
        for number, source in enumerate([*SOURCES, *REPETITIVE])
    ]
    return run_all(engine, requests)


def cut_at_a_loop(story: Story, source: tuple[int, ...], num_forced: int) -> list[int]:
    """Return the tokens up to the first check that finds a loop."""
    ids = story.token_ids
    for count in range(num_forced + LOOP_CHECK_TOKENS, len(ids), LOOP_CHECK_TOKENS):
        if loop_start(ids[: count - 1], source, num_forced) is not None:
            return ids[:count]
    return ids


@pytest.mark.parametrize(
    ("options", "loops"),
    [
        ({}, True),
        ({"streams": True}, True),
        ({"forced_ids": (4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5)}, True),
        ({"alignment_heads": ()}, True),
        ({"sampling": SamplingParams(temperature=0.4, seed=3)}, True),
        ({"sampling": SamplingParams(temperature=1.0, seed=3)}, False),
        ({"processors": ProcessorParams(no_repeat_ngram_size=4)}, False),
    ],
)
def test_a_row_ends_at_the_check_that_finds_a_loop(
    bundle: Bundle, options: dict[str, Any], loops: bool
) -> None:
    whole, ended = run(bundle, **options), run(bundle, **options, ends_loops=True)

    is_cut = False
    for name, source in enumerate([*SOURCES, *REPETITIVE]):
        expected = cut_at_a_loop(whole[f"{name}"], source, len(options.get("forced_ids", ())))
        story = ended[f"{name}"]
        assert story.token_ids == expected
        assert isinstance(story.final, FinishedEvent)
        assert story.final.reason is FinishReason.LENGTH
        is_cut |= len(expected) < len(whole[f"{name}"].token_ids)
    assert is_cut is loops


def test_the_others_in_the_batch_do_not_matter(bundle: Bundle) -> None:
    together, alone = (run(bundle, slots, ends_loops=True) for slots in (7, 1))
    assert {name: story.token_ids for name, story in together.items()} == {
        name: story.token_ids for name, story in alone.items()
    }


def test_beam_searches_are_left_to_their_end(bundle: Bundle) -> None:
    beam = BeamParams(2)
    plain, ended = (run(bundle, beam=beam, ends_loops=ends) for ends in (False, True))
    assert {name: story.token_ids for name, story in ended.items()} == {
        name: story.token_ids for name, story in plain.items()
    }
