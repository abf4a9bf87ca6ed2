"""Imported encoder-decoders compute what `transformers` computes, and decode what it decodes."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from serving.bundle.manifest import Precision, Tokens
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.parameters import NO_PROCESSORS, BeamParams, ProcessorParams
from serving.requests.request import FinishedEvent, FinishReason, GenerationRequest
from tests.export.readers.hugging_face.translators import FAMILIES, TEXT, Family, save
from tests.grid import full
from tests.serving.engine.driving import Story, run_all

NUM_SOURCES = 20
NEW_TOKENS = 12
SEARCHES: list[dict[str, Any]] = [
    {"num_beams": 1},
    {"num_beams": 4},
    {"num_beams": 3, "early_stopping": True},
    {"num_beams": 3, "early_stopping": "never", "length_penalty": 2.0},
]


@dataclass(frozen=True)
class Imported:
    """A model on both sides, and sources as `family.source` lays them out."""

    family: Family
    model: PreTrainedModel
    bundle: Bundle
    sources: list[tuple[int, ...]]


@pytest.fixture(params=FAMILIES, scope="module")
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return _imported(FAMILIES[request.param], tmp_path_factory.mktemp("translator"))


@pytest.fixture(params=["marian", "bart", "mbart-50", "t5"], scope="module")
def with_forced_end(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Imported:
    family = FAMILIES[request.param]
    generation = {"forced_eos_token_id": family.special["</s>"]}
    family = replace(family, generation=family.generation | generation)
    return _imported(family, tmp_path_factory.mktemp("translator"))


def _imported(family: Family, folder: Path) -> Imported:
    model = save(family, folder / "theirs")
    export_checkpoint(read_model(folder / "theirs"), folder / "ours", Precision.FP32)
    return Imported(family, model, open_bundle(folder / "ours"), _sources(family))


def _sources(family: Family) -> list[tuple[int, ...]]:
    random = np.random.default_rng(0)
    lengths = random.integers(1, 21, NUM_SOURCES)
    texts = [tuple(int(i) for i in random.integers(12, 105, length)) for length in lengths]
    start = family.source.index(TEXT)
    return [(*family.source[:start], *text, *family.source[start + 1 :]) for text in texts]


def test_languages_are_where_they_belong(imported: Imported) -> None:
    family, manifest = imported.family, imported.bundle.manifest
    assert family.source_language in manifest.source_languages
    assert family.target_language in manifest.target_languages
    found = _tokens(imported)
    assert (*found.source_prefix, TEXT, *found.source_suffix) == family.source
    assert found.prompt_prefix == family.prompt


@torch.inference_mode()
def test_log_probabilities_are_those_of_transformers(imported: Imported) -> None:
    random = np.random.default_rng(1)
    sources = imported.sources[:6]
    prompt = list(imported.family.prompt)
    targets = [[*prompt, *map(int, random.integers(12, 105, NEW_TOKENS))] for _ in sources]
    found = GraphRows(imported.bundle, [list(source) for source in sources]).score(targets)
    for row, source, target in zip(found, sources, targets, strict=True):
        logits = imported.model(torch.tensor([source]), decoder_input_ids=torch.tensor([target]))
        expected = _allowed(imported, logits.logits[0]).log_softmax(-1).numpy()
        possible = np.isfinite(expected)
        # Both add up floats in the order that suits the processor.
        assert np.abs(row - expected)[possible].max() < 3e-4
        assert (row[~possible] < -500).all()


def _allowed(imported: Imported, logits: torch.Tensor) -> torch.Tensor:
    for banned in imported.model.generation_config.bad_words_ids or []:
        logits[:, banned] = -torch.inf
    return logits


@pytest.mark.parametrize("num_beams", [4, *full([1])])
def test_translations_are_those_of_generate(imported: Imported, num_beams: int) -> None:
    search = {"num_beams": num_beams}
    ours = _ours(imported, search)
    assert ours == _theirs(imported, search)
    assert len({tuple(row) for row in ours}) > NUM_SOURCES / 3
    ends = [len(row) < NEW_TOKENS for row in ours]
    assert any(ends) and not all(ends)


@pytest.mark.parametrize("search", [*SEARCHES[::3], *full(SEARCHES[1:3])], ids=str)
def test_a_forced_end_comes_as_in_generate(
    with_forced_end: Imported, search: dict[str, Any]
) -> None:
    ours = _ours(with_forced_end, search)
    assert ours == _theirs(with_forced_end, search)
    eos = with_forced_end.bundle.manifest.tokens.eos
    assert {row[-1] for row in ours} == {eos}
    assert any(len(row) == NEW_TOKENS for row in ours)


@pytest.mark.slow
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("num_beams", [2, 8])
def test_translations_of_all_searches_are_those_of_generate(
    imported: Imported, num_beams: int, early_stopping: bool | str, length_penalty: float
) -> None:
    search: dict[str, Any] = {"num_beams": num_beams, "early_stopping": early_stopping}
    search |= {"length_penalty": length_penalty}
    assert _ours(imported, search) == _theirs(imported, search)


@pytest.mark.slow
def test_a_prompt_counts_in_what_must_not_come_again(imported: Imported) -> None:
    ours = _ours(imported, {"num_beams": 1}, ProcessorParams(no_repeat_ngram_size=2))
    assert ours == _theirs(imported, {"num_beams": 1, "no_repeat_ngram_size": 2})


def _ours(
    imported: Imported, search: dict[str, Any], processors: ProcessorParams = NO_PROCESSORS
) -> list[list[int]]:
    """Generated ids, </s> included where it came."""
    bundle = imported.bundle
    asked = _tokens(imported).prompt_prefix
    own = bundle.manifest.tokens.prompt_prefix
    beam = BeamParams(**search, num_counted=len(asked) - 1) if search["num_beams"] > 1 else None
    requests = [
        GenerationRequest(
            str(i),
            source,
            asked[len(own) :],
            beam=beam,
            processors=processors,
            max_new_tokens=NEW_TOKENS,
        )
        for i, source in enumerate(imported.sources)
    ]
    stories = run_all(Engine(bundle, EngineConfig(slots=40, threads=1)), requests)
    return [_ids(stories[request.request_id], bundle) for request in requests]


def _ids(story: Story, bundle: Bundle) -> list[int]:
    assert isinstance(story.final, FinishedEvent)
    has_ended = story.final.best.stop_logprob is not None
    assert has_ended or story.final.reason is FinishReason.LENGTH
    return story.token_ids + [bundle.manifest.tokens.eos] * has_ended


def _theirs(imported: Imported, search: dict[str, Any]) -> list[list[int]]:
    model, prompt = imported.model, imported.family.prompt
    longest = max(map(len, imported.sources))
    pad = model.config.pad_token_id
    ids = torch.tensor([[*s, *[pad] * (longest - len(s))] for s in imported.sources])
    lengths = torch.tensor([len(source) for source in imported.sources])
    found = model.generate(
        ids,
        attention_mask=(torch.arange(longest) < lengths[:, None]).long(),
        do_sample=False,
        max_length=len(prompt) + NEW_TOKENS,
        **imported.family.options,
        **search,
    )
    return [_generated(row, imported) for row in found.tolist()]


def _generated(row: list[int], imported: Imported) -> list[int]:
    """Return what follows the prompt, up to the end."""
    prompt, eos = imported.family.prompt, imported.bundle.manifest.tokens.eos
    assert tuple(row[: len(prompt)]) == prompt
    rest = row[len(prompt) :]
    return rest[: rest.index(eos) + 1] if eos in rest else rest


def _tokens(imported: Imported) -> Tokens:
    """Read what the bundle puts around texts in the family's languages."""
    family = imported.family
    return imported.bundle.manifest.tokens.with_languages(
        family.source_language, family.target_language
    )
