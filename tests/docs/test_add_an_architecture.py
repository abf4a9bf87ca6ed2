"""The instructions of docs/architectures.md, "Add your own architecture", followed to the letter: a
toy is written down, entered in the table, trained, exported and served, and nothing in serving/
has heard of it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from models.architectures.registry import ARCHITECTURES, config_class, graph_builder, module_class
from serving.bundle.opening import open_bundle
from serving.cli import main
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.pipelines.loading import open_model
from serving.pipelines.routing import find_translator
from serving.pipelines.translation.job import TranslationJob
from serving.requests.request import GenerationRequest
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.parity import examples_of, largest_error
from tests.serving.engine.driving import run_all, run_alone

ROOT = Path(__file__).parents[2]
SOURCES = [
    Path(__file__).parent / f"bag_of_words/{part}.py" for part in ("config", "module", "graph")
]
ENTRY = "tests.docs.bag_of_words:BagOfWords"
ENTRY_LINE = '"bag-of-words": "models.architectures.bag_of_words:BagOfWords",'
PRECISIONS = ["fp32", "int8"]
PAIRS = {
    "a dog runs": "un chien court",
    "a cat sleeps": "un chat dort",
    "the dog sleeps": "le chien dort",
    "the cat runs": "le chat court",
    "a bird sings": "un oiseau chante",
    "the bird sleeps": "l'oiseau dort",
}
RECIPE = """
name = "toy"
[model]
architecture = "bag-of-words"
vocab_size = 300
dim = 32
dropout = 0.0
[data]
train = ["pairs.tsv"]
dev = "pairs.tsv"
test = "pairs.tsv"
[optimizer]
learning_rate = 0.02
warmup = 0.02
[run]
tokens_per_batch = 128
max_steps = 300
validations = 2
precision = "fp32"
label_smoothing = 0.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Holds a trained checkpoint, and bundles of it in two precisions, compared with torch."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.toml").write_text(RECIPE)
    lines = [f"toy\t{source}\t{target}\n" for source, target in PAIRS.items()]
    (folder / "pairs.tsv").write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ARCHITECTURES, "bag-of-words", ENTRY)
        patch.chdir(folder)
        attendant("train toy.toml --data . -o run --threads 1")
        for precision in PRECISIONS:
            attendant(
                f"export run/checkpoint -o {precision} --precision {precision} --test pairs.tsv"
            )
        yield folder


def attendant(words: str) -> None:
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 0, result.output


def test_it_takes_less_than_80_lines() -> None:
    lines = [line for path in SOURCES for line in path.read_text().splitlines() if line.strip()]
    assert len([*lines, ENTRY_LINE]) < 80


def test_the_page_quotes_it() -> None:
    page = (ROOT / "docs" / "architectures.md").read_text()
    for path in SOURCES:
        assert f"`{path.name}`:\n\n```python\n{path.read_text()}```" in page
    assert f"```python\n{ENTRY_LINE}\n```" in page


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_entry_leads_to_three_parts(name: str) -> None:
    assert config_class(name).model_fields["architecture"].default == name
    assert callable(module_class(name))
    assert callable(graph_builder(name))


def test_serving_has_not_heard_of_it() -> None:
    sources = [path.read_text() for path in (ROOT / "serving").rglob("*.py")]
    assert not any(re.search("bag.of.words", source, re.IGNORECASE) for source in sources)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_bundle_computes_what_torch_does(folder: Path, precision: str) -> None:
    examples, checkpoint = examples_of("bahdanau"), folder / "run/checkpoint"
    if precision == "fp32":
        assert largest_error(folder / precision, checkpoint, examples) < 2e-5
    else:
        assert_errs_by_rounding(folder / precision, checkpoint, examples)
    assert "texts identical" in (folder / precision / "README.md").read_text()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_are_the_same_alone_and_in_company(folder: Path, precision: str) -> None:
    bundle, random = open_bundle(folder / precision), np.random.default_rng(0)
    engine = Engine(bundle, EngineConfig(slots=6, threads=1))
    requests = [
        GenerationRequest(
            str(number),
            tuple(random.integers(3, 259, random.integers(1, 60)).tolist()),
            max_new_tokens=20,
            alignment_heads=() if number % 2 == 0 else None,
        )
        for number in range(20)
    ]
    together = run_all(engine, requests)
    for request in requests:
        assert together[request.request_id].said == run_alone(engine, request).said


@pytest.mark.parametrize("precision", PRECISIONS)
async def test_it_is_served(folder: Path, precision: str) -> None:
    """It has learned its training data, and its alignments are served."""
    async with open_model(folder / precision, EngineConfig(threads=1)) as catalog:
        translator = await find_translator(catalog, "run", "en", "fr")
        job = TranslationJob("job", tuple(PAIRS), "en", "fr", returns_alignments=True)
        translation = await translator.run(job)
    assert translation.texts == tuple(PAIRS.values())
    [best, *_] = translation.renderings[0]
    assert best.alignment is not None
    assert best.alignment.source_words == ("a", "dog", "runs")
