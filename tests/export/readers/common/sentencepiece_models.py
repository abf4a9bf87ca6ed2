"""Small sentencepiece models for tests, trained in a fraction of a second."""

import functools
import io
from pathlib import Path
from typing import Any

import sentencepiece

from tests.export.readers.common.awkward import SCRIPTS

PAIRS = Path(__file__).parents[3] / "data" / "en-fr-200.tsv"
LLAMA = {
    "model_type": "bpe",
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "character_coverage": 0.98,
}
GEMMA = {**LLAMA, "add_dummy_prefix": False, "user_defined_symbols": ("▁▁", "▁▁▁", "\n", "<sep>")}


@functools.cache
def trained(**options: Any) -> bytes:
    """The bytes of a model file; options are the trainer's own, with tuples for lists."""
    options = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
    pairs = PAIRS.read_text(encoding="utf-8").replace("\t", "\n").splitlines()
    settings = {"vocab_size": 1000, "num_threads": 1, "hard_vocab_limit": False, "minloglevel": 2}
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SCRIPTS * 3, *pairs]), model_writer=file, **{**settings, **options}
    )
    return file.getvalue()
