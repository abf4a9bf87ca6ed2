"""Property tests: what has to be in an answer is in it, whatever the shipped models write."""

import asyncio
from collections.abc import Iterator
from typing import Protocol

import pytest
from hypothesis import strategies as st

from serving.commands.options import engine_config
from serving.pipelines.catalog import Translator
from serving.pipelines.loading import open_model
from serving.pipelines.routing import find_translator
from serving.text.markup.tokens import Markup, MarkupKind
from tests.served import ROOT, int8_bundle
from tests.serving.text.protection.random_texts import (
    Made,
    check_nothing_is_missing,
    made_texts,
)
from tests.serving.text.protection.test_survival import (
    as_marked,
    from_marked,
    holds,
    seeds,
    translations,
)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


class Opens(Protocol):
    def __call__(self, name: str) -> Translator: ...


@pytest.fixture(scope="module")
def open_bundle(
    tmp_path_factory: pytest.TempPathFactory, runner: asyncio.Runner
) -> Iterator[Opens]:
    """Opens a bundle by name, once: a shipped checkpoint's, or one that lies in build."""
    folder = tmp_path_factory.mktemp("open_bundle")
    models: dict[str, Translator] = {}
    opening = []

    def open_bundle(name: str) -> Translator:
        if name not in models:
            built = ROOT / "build/bundles" / name
            if name == "en-pt" and not built.exists():
                pytest.skip("bergamot-en-pt is not there: attendant pull bergamot-en-pt")
            path = built if built.exists() else int8_bundle(name, "", folder)
            opening.append(open_model(path, engine_config("cpu", slots=32)))
            catalog = runner.run(opening[-1].__aenter__())
            models[name] = runner.run(find_translator(catalog, catalog.local_cards[0].name, "", ""))
        return models[name]

    yield open_bundle
    for translator in opening:
        runner.run(translator.__aexit__(None, None, None))


MODELS = ["transformer-en-fr", "bahdanau-en-fr", "en-pt"]


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param(4, id="few", marks=pytest.mark.full),
        pytest.param(40, id="many", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", MODELS)
def test_texts_through_shipped_models(
    batches: int, name: str, open_bundle: Opens, runner: asyncio.Runner
) -> None:
    def survive(many: list[Made]) -> None:
        answers = translations(runner, open_bundle(name), [generated.text for generated in many])
        for generated, answer in zip(many, answers, strict=True):
            check_nothing_is_missing(generated, answer)

    texts = st.lists(made_texts(), min_size=20, max_size=20)
    holds(batches, survive, texts, shrinks=False)


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param(3, id="few", marks=pytest.mark.full),
        pytest.param(40, id="many", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", MarkupKind)
@pytest.mark.parametrize("name", MODELS)
def test_marked_texts_through_shipped_models(
    batches: int, name: str, kind: MarkupKind, open_bundle: Opens, runner: asyncio.Runner
) -> None:
    def survive(many: list[Made], seed: int) -> None:
        texts = [as_marked(generated, seed) for generated in many]
        answers = translations(runner, open_bundle(name), texts, markup=Markup(kind))
        for generated, answer in zip(many, answers, strict=True):
            check_nothing_is_missing(generated, from_marked(answer))

    texts = st.lists(made_texts(), min_size=20, max_size=20)
    holds(batches, survive, texts, seeds, shrinks=False)
