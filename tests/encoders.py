"""Tiny random bundles that only encode: an embedder, classifiers of texts and tokens, a reranker,
and a model that fills masks.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from models.architectures.registry import graph_builder, parse_config
from models.checkpoint import load_checkpoint, save_checkpoint
from models.conventions import Conventions
from serving.bundle.manifest import Precision
from tests.cache import export_cached
from tests.tiny import RandomWeights, byte_tokenizer

CLS, SEP, MASK = 1, 2, 259
SIZES = {"d_model": 32, "num_heads": 4, "ffn_dim": 64, "num_layers": 2, "max_source_tokens": 64}
# Like BERT's pairs, and like the prompts of an asymmetric model.
ENCODER_CONVENTIONS = Conventions(
    source_prefix=(CLS,),
    source_suffix=(SEP,),
    separator=(SEP,),
    prompts={"query": "query: ", "passage": "passage: "},
)
HEADS: dict[str, dict[str, Any]] = {
    "embedder": {"kind": "embedding", "normalised": True},
    "classifier": {"kind": "labels", "labels": ["good", "bad", "so-so"]},
    "reranker": {"kind": "labels", "labels": ["relevance"], "scores": "sigmoid"},
    "tagger": {"kind": "token-labels", "labels": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]},
    "masked": {"kind": "masked-words", "mask_id": MASK},
}


def encoder_bundle(
    kind: str,
    folder: Path,
    precision: Precision = Precision.FP32,
    conventions: Conventions = ENCODER_CONVENTIONS,
    **changes: Any,
) -> Path:
    """Make a bundle of that name in a folder; `changes` override its tiny configuration."""
    tokenizer = byte_tokenizer()
    if kind == "masked":
        tokenizer.add_tokens([AddedToken("<mask>", normalized=False)])
    config = parse_config(
        {
            "architecture": "transformer-encoder",
            "vocab_size": tokenizer.get_vocab_size(),
            "num_types": 2,
            "head": HEADS[kind],
            **SIZES,
            **changes,
        }
    )
    weights, path = RandomWeights(len(kind)), folder / f"checkpoint-{kind}"
    graph_builder("transformer-encoder")(config, weights, Precision.FP32)
    save_checkpoint(path, config, weights.arrays, tokenizer.to_str())
    if kind == "tagger":  # prompts would move its spans
        conventions = replace(conventions, prompts={})
    checkpoint = replace(load_checkpoint(path), conventions=conventions)
    export_cached(checkpoint, folder / f"{kind}-{precision}", precision, name=kind)
    return folder / f"{kind}-{precision}"
