"""Makes random texts for encoders, and runs a bundle's graph on them."""

from typing import Any

import numpy as np

from export.bundling.running import TextGraph
from serving.bundle.opening import Bundle
from tests.export.parity import random_ids

Text = tuple[list[int], list[int]]  # ids, segments
RERANKER: dict[str, Any] = {
    "num_types": 0,
    "pooling": ["cls"],
    "head": {"kind": "labels", "labels": ["relevant"], "dense": [{"dim": 19}]},
}
LIKE_MPNET: dict[str, Any] = {
    "num_types": 1,
    "distances": {"kind": "relative", "num_buckets": 8, "max_distance": 20},
    "head": {"kind": "embedding", "dense": [{"dim": 17, "activation": "none"}], "normalised": True},
}

LIKE_DEBERTA: dict[str, Any] = {
    "num_types": 0,
    "has_positions": False,
    "distances": {"kind": "disentangled", "num_buckets": 8, "max_distance": 40},
}
LIKE_DEBERTA_XLARGE = LIKE_DEBERTA | {"convolution": {"kernel_size": 3, "activation": "gelu"}}
LIKE_ALBERT: dict[str, Any] = {"embedding_dim": 20, "shared_layer": True, "num_layers": 3}

TAGGER: dict[str, Any] = {"num_types": 0, "head": {"kind": "token-labels", "labels": ["O", "B-X"]}}
MASKED_WORDS: dict[str, Any] = {"num_types": 0, "head": {"kind": "masked-words", "mask_id": 9}}


def random_texts(lengths: tuple[int, ...]) -> list[Text]:
    """Draw texts of these lengths, the second half of each as if it were the other of a pair."""
    random = np.random.default_rng(len(lengths))
    return [
        (random_ids(random, length), [int(place >= length // 2) for place in range(length)])
        for length in lengths
    ]


def encoded(
    bundle: Bundle, texts: list[Text], span: int = 0, threads: int = 1
) -> dict[str, np.ndarray]:
    """Encode texts side by side; a graph that tells of attention tells of it."""
    names = ("encode_attention", "encode")
    name = next(name for name in names if name in bundle.manifest.graphs)
    ids, types = map(list, zip(*texts, strict=True))
    return TextGraph(bundle, name, threads).run(ids, types, span)


LIKE_QWEN_EMBEDDING: dict[str, Any] = {  # options of rotary-encoder
    "num_types": 0,
    "num_kv_heads": 2,
    "head_dim": 20,
    "causal": True,
    "norm": {"kind": "rms", "epsilon": 1e-6},
    "embedding_norm": False,
    "activation": "swish",
    "pooling": ["last"],
    "head": {"kind": "embedding", "normalised": True},
    "window": {"size": 7, "layers": [1], "rotation": {"theta": 100.0}},
    "imported": {"qk_norm": True, "attention_bias": "qkv"},
}
LIKE_EMBEDDING_GEMMA: dict[str, Any] = LIKE_QWEN_EMBEDDING | {
    "num_kv_heads": 1,
    "head_dim": None,
    "causal": False,
    "activation": "gelu_tanh",
    "pooling": ["mean"],
    "rotation": {"frequencies": [0.9, 0.1, 0.01], "magnitude": 1.2},
    "imported": {
        "qk_norm": True,
        "sandwich_norms": True,
        "attention_cap": 2.0,
        "attention_bias": "all",
        "ffn_bias": True,
    },
}
LIKE_NOMIC: dict[str, Any] = {"norm": {"place": "post"}, "activation": "swish", "window": None}
