"""all-MiniLM-L6-v2 of the catalogue, beside what Sentence Transformers makes of the same folder.

The folder comes with `attendant pull all-minilm-l6-v2`. Tests look for it where MINILM_FOLDER says.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.text.tokenizer import Tokenizer
from tests.export.texts import encoded

FOLDER = Path(os.environ.get("MINILM_FOLDER", "all-minilm-l6-v2"))
TEXTS = [
    "How do I get my money back?",
    "Refunds are paid within two weeks.",
    "We are open from nine to five.",
    "Une phrase en français, avec des accents.",
    "a text that is longer than the model reads " * 40,
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="MINILM_FOLDER names no folder"),
]


@pytest.mark.parametrize(("precision", "least_cosine"), [("fp32", 0.999999), ("int8", 0.99)])
def test_embeddings_are_those_of_sentence_transformers(
    precision: str, least_cosine: float, tmp_path: Path
) -> None:
    export_checkpoint(read_model(FOLDER), tmp_path / "bundle", precision=Precision(precision))
    bundle = open_bundle(tmp_path / "bundle")
    manifest = bundle.manifest
    ids = Tokenizer(bundle.tokenizer_path, manifest.vocab_size).encode_batch(TEXTS)
    prefix, suffix = manifest.tokens.source_prefix, manifest.tokens.source_suffix
    assert manifest.limits.max_source_tokens is not None
    num_tokens = manifest.limits.max_source_tokens - len(prefix + suffix)
    rows = [[*prefix, *text_ids[:num_tokens], *suffix] for text_ids in ids]
    embeddings = encoded(bundle, [(row, [0] * len(row)) for row in rows])["embedding"]

    expected = SentenceTransformer(str(FOLDER), device="cpu").encode(TEXTS)
    assert (np.asarray(embeddings) * expected).sum(axis=1).min() > least_cosine
