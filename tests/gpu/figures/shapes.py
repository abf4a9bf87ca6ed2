"""The models that figures are taken of: sizes of published ones, random weights."""

from dataclasses import dataclass
from typing import Any

from tests.gpu.parts import Place


@dataclass(frozen=True)
class Shape:
    """architecture, sizes: of our configuration. source, target: tokens of every request."""

    name: str
    architecture: str
    sizes: dict[str, Any]
    source: int
    target: int


def _translator(width: int, heads: int, ffn: int, layers: int, vocab: int) -> dict[str, Any]:
    return {
        "d_model": width,
        "num_heads": heads,
        "ffn_dim": ffn,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "vocab_size": vocab,
        "max_source_tokens": 128,
        "max_target_tokens": 160,
    }


def _llama(width: int, heads: int, kv_heads: int, ffn: int, layers: int) -> dict[str, Any]:
    return {
        "d_model": width,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "ffn_dim": ffn,
        "num_layers": layers,
        "vocab_size": 49152,
        "context_length": 512,
    }


def _recurrent(vocab: int = 32000, **sizes: Any) -> dict[str, Any]:
    common = {"embedding_dim": 512, "readout_dim": 512, "vocab_size": vocab}
    return common | {"max_source_tokens": 128, "max_target_tokens": 160} | sizes


SHAPES = [
    Shape("Transformer-base", "transformer", _translator(512, 8, 2048, 6, 32000), 32, 64),
    Shape(
        "BART-large",
        "transformer",
        _translator(1024, 16, 4096, 12, 50265)
        | {
            "activation": "gelu",
            "positions": {"kind": "learned"},
            "norm": {"place": "post"},
            "imported": {"embedding_norm": True, "embedding_scale": 1.0},
        },
        32,
        128,
    ),
    Shape("Llama 135M", "llama", _llama(576, 9, 3, 1536, 30), 32, 128),  # that of SmolLM2
    Shape(  # that of Qwen2.5
        "Llama 1.5B",
        "llama",
        _llama(1536, 12, 2, 8960, 28) | {"head_dim": 128, "vocab_size": 151936},
        32,
        128,
    ),
    Shape("Bahdanau", "bahdanau", _recurrent(hidden_dim=1024, attention_dim=1024), 32, 32),
    Shape("Luong", "luong", _recurrent(hidden_dim=1024, num_layers=2), 32, 32),
    Shape(
        "SSRU",
        "transformer-ssru",
        _translator(512, 8, 2048, 6, 32000) | {"decoder_layers": 2},
        32,
        32,
    ),
]
NARROW = {"hidden_dim": 32, "embedding_dim": 16, "readout_dim": 16}
TINY: dict[str, dict[str, Any]] = {
    "transformer": _translator(32, 4, 64, 2, 300),
    "transformer-ssru": _translator(32, 4, 64, 2, 300),
    "llama": _llama(32, 4, 2, 64, 2) | {"vocab_size": 300},
    "bahdanau": _recurrent(300, attention_dim=24) | NARROW,
    "luong": _recurrent(300) | NARROW,
}


def shape_at(place: Place) -> Shape:
    """The shape that a part is of, or on a CPU one of the same architecture that is tiny."""
    shape = next(each for each in SHAPES if each.name == place.shape)
    if not place.is_tiny:
        return shape
    return Shape(f"tiny {shape.name}", shape.architecture, TINY[shape.architecture], 5, 6)
