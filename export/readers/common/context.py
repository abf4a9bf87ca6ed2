"""Lets models read less than they could: keys and values of a whole context take memory, and
LongRoPE's rotations are those of `transformers` in short texts only, or in long ones only.
"""

from collections.abc import Iterator
from typing import Any

from export.readers.common.options import Options

BY_LENGTHS = ("longrope", "su", "yarn")  # scalings whose factor may follow from two lengths
CAPPED = (
    "the context is {border} tokens, of {whole}: longer texts are rotated by another table of"
    " LongRoPE, and here a model has one. `attendant export --context-length {whole}` takes the"
    " other one, for short texts too"
)
LONG = (
    "texts of up to {border} tokens are not read exactly as transformers reads them, but as vLLM"
    " does: with a context of {length} tokens all are rotated by the long table of LongRoPE, which"
    " transformers takes beyond {border} only"
)


def fit(config: Options, context_length: int | None) -> tuple[str, ...]:
    """Let `config`, of a language model, read `context_length` tokens at most; without one, as many
    as are read exactly. Gives what whoever exports it should know.
    """
    border, whole = _border_of_longrope(config), config.get("max_position_embeddings")
    if context_length is not None:
        shorten(config, context_length)
        is_exact = border is None or context_length <= border
        return () if is_exact else (LONG.format(border=border, length=context_length),)
    if border is None:
        return ()
    shorten(config, border)
    return (CAPPED.format(border=border, whole=whole),)


def shorten(config: Options, context_length: int) -> None:
    """Let `config`, of a language model, say that it reads `context_length` tokens at most.

    Scalings of its positions stay what they are, but LongRoPE takes its short table up to where the
    long one begins. A length beyond the model's own is a problem.
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


def _border_of_longrope(config: Options) -> int | None:
    """Find the longest text that the short table rotates, if longer ones have another table."""
    whole = config.get("max_position_embeddings")
    for rope in _ropes(config):
        kind = rope.get("rope_type") or rope.get("type")
        is_phi = config.get("model_type") == "phi3" and kind == "yarn"  # of its early files
        if not (kind in ("longrope", "su") or is_phi):
            continue
        name = "original_max_position_embeddings"
        border = config.get(name, rope.get(name))
        is_there = isinstance(border, int) and isinstance(whole, int) and 2 <= border < whole
        if is_there and rope.get("short_factor") != rope.get("long_factor"):
            return border
    return None


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
