"""Logits processors that a folder asks for are those of `transformers`, in every search."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from export.bundling.writer import export_checkpoint, read_logits_processors
from export.readers.reading import read_model
from serving.bundle.manifest import LengthDecay, LogitsProcessors, Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.bundle.validation import manifest_problems
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.parameters import BeamParams
from serving.requests.request import GenerationRequest
from tests.export.readers.hugging_face import language_models, translators
from tests.export.readers.hugging_face.changing import change
from tests.export.readers.hugging_face.translators import TEXT
from tests.grid import full
from tests.serving.engine.driving import run_all

NUM_TEXTS = 12
NEW_TOKENS = 12
TRANSLATORS = ["m2m-100", "bart", "t5", "marian"]
Settings = dict[str, Any]


@dataclass(frozen=True)
class Sides:
    """A model of theirs in a folder, its bundle, and texts of one length, which need no padding.

    prompt: the beginning of a target that the bundle does not have by itself.
    """

    model: PreTrainedModel
    folder: Path
    bundle: Bundle
    texts: list[tuple[int, ...]]
    prompt: tuple[int, ...]
    target: tuple[int, ...]
    options: Settings

    @property
    def has_source(self) -> bool:
        return bool(self.target)

    def ours(self, settings: Settings, num_beams: int) -> list[list[int]]:
        """Return what the engine generates with settings of the folder, stop tokens left out."""
        change(self.folder / "generation_config.json", **settings)
        processors = read_logits_processors(read_model(self.folder).conventions)
        manifest = replace(self.bundle.manifest, logits_processors=processors)
        engine = Engine(Bundle(self.bundle.folder, manifest), EngineConfig(slots=48, threads=1))
        beam = BeamParams(num_beams, num_counted=max(len(self.target) - 1, 0))
        requests = [
            GenerationRequest(
                str(number),
                text if self.has_source else None,
                self.prompt if self.has_source else text,
                is_whole=not self.has_source,
                max_new_tokens=NEW_TOKENS,
                beam=beam if num_beams > 1 else None,
            )
            for number, text in enumerate(self.texts)
        ]
        stories = run_all(engine, requests)
        change(self.folder / "generation_config.json", **dict.fromkeys(settings))
        return [stories[request.request_id].token_ids for request in requests]

    def theirs(self, settings: Settings, num_beams: int) -> list[list[int]]:
        start = self.target or self.texts[0]
        found = self.model.generate(
            torch.tensor(self.texts),
            attention_mask=torch.ones(len(self.texts), len(self.texts[0]), dtype=torch.long),
            do_sample=False,
            num_beams=num_beams,
            max_length=len(start) + NEW_TOKENS,
            eos_token_id=self.eos,
            pad_token_id=self.bundle.manifest.tokens.pad,
            **(self.options | settings),
        )
        rows = [row[len(start) :] for row in found.tolist()]
        return [row[: row.index(self.eos)] if self.eos in row else row for row in rows]

    @property
    def eos(self) -> int:
        return self.bundle.manifest.tokens.eos


@pytest.fixture(params=["m2m-100", "marian", "llama", *full(["bart", "t5"])], scope="module")
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sides:
    folder = tmp_path_factory.mktemp("sides")
    is_translator = request.param in TRANSLATORS
    make = _translator if is_translator else _language_model
    return make(request.param, folder)


def _translator(name: str, folder: Path) -> Sides:
    family = translators.FAMILIES[name]
    model = translators.save(family, folder / "theirs")
    bundle = _exported(folder)
    tokens = bundle.manifest.tokens.with_languages(family.source_language, family.target_language)
    start = family.source.index(TEXT)
    texts = [(*family.source[:start], *text, *family.source[start + 1 :]) for text in _texts()]
    prompt = tokens.prompt_prefix[len(bundle.manifest.tokens.prompt_prefix) :]
    return Sides(
        model, folder / "theirs", bundle, texts, prompt, tokens.prompt_prefix, family.options
    )


def _language_model(name: str, folder: Path) -> Sides:
    model = language_models.random_model(name)
    language_models.save(model, folder / "theirs")
    texts = [(language_models.BOS, *text) for text in _texts()]
    return Sides(model, folder / "theirs", _exported(folder), texts, (), (), {"use_cache": False})


def _texts() -> list[tuple[int, ...]]:
    random = np.random.default_rng(0)
    return [tuple(map(int, random.integers(12, 105, 7))) for _ in range(NUM_TEXTS)]


def _exported(folder: Path) -> Bundle:
    export_checkpoint(read_model(folder / "theirs"), folder / "ours", Precision.FP32)
    return open_bundle(folder / "ours")


def settings_for(plain: list[list[int]], sides: Sides) -> Iterator[tuple[str, Settings]]:
    """Yield settings that are aimed at what is generated without them."""
    tokens = [i for i, _ in Counter(i for row in plain for i in row).most_common(6)]
    pairs = [
        [*pair] for pair, _ in Counter(p for row in plain for p in pairwise(row)).most_common(9)
    ]
    triples = [row[2:5] for row in plain if len(row) > 5][:4]
    firsts = sorted({row[0] for row in plain if row})
    words = [[tokens[0]], *pairs[:5], *triples]
    yield "one word", {"bad_words_ids": [[tokens[0]], [tokens[1]]]}
    yield "words of several tokens", {"bad_words_ids": words}
    yield "an end among the words", {"bad_words_ids": [[sides.eos], [tokens[2]]]}
    yield "suppressed", {"suppress_tokens": [*tokens[:3], -1]}
    yield "suppressed end", {"suppress_tokens": [sides.eos]}
    yield "suppressed at the beginning", {"begin_suppress_tokens": [*firsts, sides.eos]}
    yield "no bigrams of the source", {"encoder_no_repeat_ngram_size": 2}
    yield "no tokens of the source", {"encoder_no_repeat_ngram_size": 1}
    yield "tokens of the source", {"encoder_repetition_penalty": 3.0}
    yield "no hurry", {"exponential_decay_length_penalty": (3, 1.8)}
    yield "normalised", {"suppress_tokens": tokens, "renormalize_logits": True}
    yield (
        "all",
        {
            "bad_words_ids": words,
            "suppress_tokens": tokens[3:5],
            "begin_suppress_tokens": firsts[:3],
            "encoder_no_repeat_ngram_size": 2,
            "encoder_repetition_penalty": 1.5,
            "exponential_decay_length_penalty": (2, 1.3),
            "renormalize_logits": True,
        },
    )


@pytest.mark.parametrize("num_beams", [4, *full([1])])
def test_texts_are_those_of_generate(num_beams: int, sides: Sides) -> None:
    is_marian = sides.model.config.model_type == "marian"
    base: Settings = {"bad_words_ids": [[119]], "renormalize_logits": True} if is_marian else {}
    plain = sides.ours(base, num_beams)
    assert plain == sides.theirs(base, num_beams)
    changed = set()
    for name, settings in settings_for(plain, sides):
        if is_marian:  # whose words of one token are written into the weights
            settings["bad_words_ids"] = base["bad_words_ids"] + [
                word for word in settings.get("bad_words_ids", []) if len(word) > 1
            ]
            settings["renormalize_logits"] = True
        ours = sides.ours(settings, num_beams)
        assert ours == sides.theirs(settings, num_beams), name
        changed |= {name} if ours != plain else set()
    assert len(changed) >= (8 if is_marian else 10), changed


def test_a_bundle_holds_them(tmp_path: Path) -> None:
    language_models.save(language_models.random_model("llama"), tmp_path / "theirs")
    change(
        tmp_path / "theirs" / "generation_config.json",
        bad_words_ids=[[5], [6, 7]],
        suppress_tokens=[8, 8, -1],
        begin_suppress_tokens=[9],
        encoder_no_repeat_ngram_size=3,
        encoder_repetition_penalty=1.5,
        exponential_decay_length_penalty=[4, 2],
        renormalize_logits=True,
    )
    assert _exported(tmp_path).manifest.logits_processors == LogitsProcessors(
        bad_words_ids=((5,), (6, 7)),
        suppress_tokens=(8,),
        begin_suppress_tokens=(9,),
        encoder_no_repeat_ngram_size=3,
        encoder_repetition_penalty=1.5,
        exponential_decay_length_penalty=LengthDecay(4, 2.0),
        renormalize_logits=True,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("suppress_tokens", (10_000,)),
        ("bad_words_ids", ((),)),
        ("encoder_no_repeat_ngram_size", -1),
        ("encoder_repetition_penalty", 0.0),
        ("exponential_decay_length_penalty", LengthDecay(1, -2.0)),
    ],
)
def test_a_bundle_with_others_is_refused(name: str, value: Any, sides: Sides) -> None:
    processors = replace(LogitsProcessors(), **{name: value})
    manifest = replace(sides.bundle.manifest, logits_processors=processors)
    assert "logits_processors" in "; ".join(manifest_problems(manifest))


@pytest.mark.parametrize("num_beams", [1, *full([4])])
def test_a_row_has_what_it_has_alone(num_beams: int, sides: Sides) -> None:
    """The same settings, with all texts in one batch and each by itself."""
    plain = sides.ours({}, num_beams)
    *_, (_, settings) = settings_for(plain, sides)
    together = sides.ours(settings, num_beams)
    alone = [replace(sides, texts=[text]).ours(settings, num_beams)[0] for text in sides.texts[:3]]
    assert together[:3] == alone
