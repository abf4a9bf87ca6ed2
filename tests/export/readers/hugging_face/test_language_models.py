"""Language models from Hugging Face folders compute and generate what `transformers` does."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedModel

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.common.decoders.families import FAMILIES as LANGUAGE_MODELS
from export.readers.hugging_face.families import read_checkpoint
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.parameters import BeamParams
from serving.requests.request import FinishedEvent, FinishReason, GenerationRequest
from tests.export.readers.hugging_face.language_models import (
    BOS,
    CONTEXT_LENGTH,
    EOS,
    FAMILIES,
    VARIANTS,
    generated,
    log_probabilities,
    prompts,
    random_model,
    save,
)
from tests.grid import full, in_turns
from tests.serving.engine.driving import run_all

NEW_TOKENS = 12
TOLERANCE = 1e-4  # nats


@dataclass(frozen=True)
class Sides:
    """A model, theirs in torch and ours in a bundle."""

    model: PreTrainedModel
    bundle: Bundle


@pytest.fixture(scope="module")
def sides_of(tmp_path_factory: pytest.TempPathFactory):
    known: dict[str, Sides] = {}

    def make(name: str) -> Sides:
        if name not in known:
            known[name] = imported(random_model(name), tmp_path_factory.mktemp("model"))
        return known[name]

    return make


def imported(model: PreTrainedModel, folder: Path) -> Sides:
    export_checkpoint(
        read_checkpoint(save(model, folder / "theirs")), folder / "ours", Precision.FP32
    )
    return Sides(model, open_bundle(folder / "ours"))


def test_each_family_is_here() -> None:
    assert FAMILIES.keys() == LANGUAGE_MODELS.keys()


@pytest.mark.parametrize("name", [*FAMILIES, *VARIANTS])
def test_log_probabilities_are_theirs(name: str, sides_of) -> None:
    sides = sides_of(name)
    for prompt in prompts(4):
        ids = [BOS, *prompt, *prompts(1, seed=1)[0], 100, 101, 102, 103]
        expected = log_probabilities(sides.model, ids)
        rows, read = GraphRows(sides.bundle, [[]]), len(prompt) + 1
        found = [rows.read([ids[:read]])[0], *(rows.read([[i]])[0] for i in ids[read:])]
        assert np.abs(np.stack(found) - expected[read - 1 :]).max() < TOLERANCE


SEARCHED = [  # of each kind of state and position some
    "llama",
    "bloom",
    "deepseek_v3",
    "gemma3_text",
    "gpt2",
    "gpt_neo",
    "gpt_neox",
    "gpt_oss",
    "mamba",
    "mamba2",
    "mixtral",
    "phi3",
]


@pytest.mark.parametrize(
    ("name", "num_beams"),
    [
        *in_turns(SEARCHED, [1, 4]),
        *full(product(sorted(FAMILIES.keys() - SEARCHED), [1, 4])),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in product(VARIANTS, [1, 4])),
    ],
)
def test_texts_are_theirs(name: str, num_beams: int, sides_of) -> None:
    sides, given = sides_of(name), prompts(20, seed=2)
    theirs = generated(sides.model, given, num_beams=num_beams, max_new_tokens=NEW_TOKENS)
    assert continued(sides.bundle, given, num_beams) == theirs
    ended = sum(EOS in ids for ids in theirs)
    assert 0 < ended < len(theirs), "some must end by themselves, and some must not"


def test_long_texts_of_longrope_are_theirs_if_a_long_context_is_asked_for(tmp_path: Path) -> None:
    """Compare prompts beyond the border; with a cache, which is how `generate` works."""
    model = random_model("phi3")
    save(model, tmp_path / "theirs")
    checkpoint = read_checkpoint(tmp_path / "theirs", CONTEXT_LENGTH)
    (note,) = checkpoint.notes
    assert note.startswith("texts of up to 40 tokens are not read exactly as transformers")
    export_checkpoint(checkpoint, tmp_path / "ours", Precision.FP32)
    given = [[*prompt, *range(50, 90)] for prompt in prompts(20, seed=2)]
    given = [prompt[: CONTEXT_LENGTH - NEW_TOKENS - 1] for prompt in given]
    theirs = generated(model, given, max_new_tokens=NEW_TOKENS, use_cache=True)
    assert continued(open_bundle(tmp_path / "ours"), given, 1) == theirs


def test_the_context_of_longrope_ends_where_it_is_exact(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(save(random_model("phi3"), tmp_path / "theirs"))
    (note,) = checkpoint.notes
    assert note.startswith("the context is 40 tokens, of 64: longer texts are rotated by another")
    export_checkpoint(checkpoint, tmp_path / "ours", Precision.FP32)
    assert open_bundle(tmp_path / "ours").manifest.limits.max_target_tokens == 40
    assert note in (tmp_path / "ours" / "README.md").read_text()
    assert read_checkpoint(tmp_path / "theirs", 30).notes == ()


def continued(bundle: Bundle, given: list[list[int]], num_beams: int) -> list[list[int]]:
    """All in one batch, </s> included."""
    engine = Engine(bundle, EngineConfig(slots=20 * num_beams, threads=1))
    beam = BeamParams(num_beams) if num_beams > 1 else None
    stories = run_all(
        engine,
        (
            GenerationRequest(str(n), prompt_ids=tuple(ids), max_new_tokens=NEW_TOKENS, beam=beam)
            for n, ids in enumerate(given)
        ),
    )
    found = []
    for number in range(len(given)):
        story = stories[str(number)]
        assert isinstance(story.final, FinishedEvent)
        found.append(story.token_ids + [EOS] * (story.final.reason is FinishReason.STOP))
    return found
