"""Models that shall read less than they could: keys and values of a whole context take memory."""

from collections.abc import Iterator
from typing import Any

from models.pretrained.hugging_face.options import Options

BY_LENGTHS = ("longrope", "su", "yarn")  # scalings whose factor may follow from two lengths


def shorten(config: Options, context_length: int) -> None:
    """Let `config`, of a language model, say that it reads `context_length` tokens at most.

    Scalings of its positions stay what they are, but LongRoPE takes its short table where that is
    enough. A length beyond the model's own is a problem.
    """
    whole = config.integer("max_position_embeddings", config.integer("n_positions", 1))
    if not 2 <= context_length <= whole:
        config.problems.append(f"context length {context_length} is not one of 2 to {whole}")
        return
    for rope in _ropes(config):
        inner = rope.get("original_max_position_embeddings") or whole
        rope["original_max_position_embeddings"] = inner
        original = config.integer("original_max_position_embeddings", inner)
        is_told = rope.get("factor") is not None
        if not is_told and {rope.get("rope_type"), rope.get("type")} & {*BY_LENGTHS}:
            rope["factor"] = whole / original
    config.values["max_position_embeddings"] = context_length


def _ropes(config: Options) -> Iterator[dict[str, Any]]:
    """Where scalings stand: for all layers, or for each kind of them."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = config.values.get(name)
        if isinstance(rope, dict):
            config.values[name] = rope = dict(rope)
            yield from _copied(rope)
            yield rope


def _copied(rope: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, inner in rope.items():
        if isinstance(inner, dict):
            rope[kind] = dict(inner)
            yield rope[kind]
