"""Rotary position embeddings from `config.json`, and the context lengths that they allow.

Every kind of scaling is a table of frequencies, radians a position for each pair, and a factor that
the rotated numbers are multiplied by (transformers/modeling_rope_utils.py). Two kinds there change
with the length of a text. A dynamic one equals the plain one up to the length that the model was
made for, which is never exceeded here. LongRoPE has a short and a long table; transformers takes
the long one for the whole of a text beyond `original_max_position_embeddings`, and when a text
grows beyond it, all keys are computed anew. Here a model has one table: the short one, unless a
longer context is asked for. A shorter context also saves memory of keys and values.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from export.readers.common.options import Options
from models.safetensors import Array

LARGEST_HEAD = 2**16


class Rotary(NamedTuple):
    """frequencies: of every pair that is rotated."""

    frequencies: tuple[float, ...]
    magnitude: float

    @property
    def options(self) -> dict[str, object]:
        """Return the options in the form of our configurations."""
        imported = {"rotary_frequencies": self.frequencies, "rotary_magnitude": self.magnitude}
        return {"imported": imported}


class Scaling(NamedTuple):
    """A section of `config.json` that scales rotary frequencies, and the frequencies before
    scaling.
    """

    rope: Options
    plain: Array
    theta: float
    context_length: int
    original_length: int

    @property
    def factor(self) -> float:
        """Return the factor by which the context became longer."""
        by_lengths = self.context_length / self.original_length
        return self.rope.positive("factor", by_lengths)


def read_rotary(
    config: Options,
    rope: Options,
    head_size: int,
    *,
    theta: float = 10000.0,
    portion: float = 1.0,
) -> Rotary:
    """Return the table that `rope`, a section of `config`, asks for.

    theta, portion: where neither says anything; portion is the part of a head that is rotated.
    """
    theta = rope.positive("rope_theta", config.positive("rope_theta", theta))
    portion = config.positive("partial_rotary_factor", portion)
    size = int(min(head_size, LARGEST_HEAD) * rope.positive("partial_rotary_factor", portion))
    plain = theta ** (-np.arange(0, min(size, LARGEST_HEAD), 2) / size)
    kind = rope.word("rope_type", rope.word("type", "default"))
    scale = SCALINGS.get(kind)
    if scale is None:
        rope.refuse("rope_type" if "rope_type" in rope else "type")
        scale = _plain
    context_length = config.integer("max_position_embeddings")
    original = rope.integer("original_max_position_embeddings", context_length)
    original = config.integer("original_max_position_embeddings", original)
    try:
        with np.errstate(all="ignore"):  # our configuration refuses what is not finite
            scaled = scale(Scaling(rope, plain, theta, context_length, original))
    except (ArithmeticError, ValueError) as error:
        rope.problems.append(f"{rope.file}: cannot be computed: {error}")
        scaled = plain, 1.0
    frequencies, magnitude = scaled
    return Rotary((*map(float, frequencies),), magnitude)


def rope_section(config: Options) -> Options:
    """Return `rope_scaling` if it is given, else `rope_parameters`, its name in transformers 5."""
    return config.section("rope_scaling" if config.get("rope_scaling") else "rope_parameters")


def _plain(scaling: Scaling) -> tuple[Array, float]:
    return scaling.plain, 1.0


def _dynamic(scaling: Scaling) -> tuple[Array, float]:
    """Scale nothing: the factor has an effect only in texts longer than the model was made for."""
    scaling.rope.use("factor")
    return _plain(scaling)


def _linear(scaling: Scaling) -> tuple[Array, float]:
    """Squeeze positions (Chen et al. 2023)."""
    return scaling.plain / scaling.rope.positive("factor"), 1.0


def _llama3(scaling: Scaling) -> tuple[Array, float]:
    """Slow pairs are squeezed, fast ones are not (Llama Team 2024, 3.2; Meta's reference code)."""
    rope, plain = scaling.rope, scaling.plain
    slow, fast = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    turns = scaling.original_length * plain / (2 * math.pi)
    squeezed = plain / rope.positive("factor")
    smooth = np.clip((turns - slow) / (fast - slow), 0, 1)
    return (1 - smooth) * squeezed + smooth * plain, 1.0


def _yarn(scaling: Scaling) -> tuple[Array, float]:
    """Squeeze by parts, and sharpen (Peng et al. 2023, 3.2 and 3.4)."""
    rope, plain, factor = scaling.rope, scaling.plain, scaling.factor
    size = 2 * len(plain)

    def pair_of(turns: float) -> float:
        """Return the pair that turns this number of times over the original length."""
        ratio = scaling.original_length / (turns * 2 * math.pi)
        return size * math.log(ratio) / (2 * math.log(scaling.theta))

    low, high = pair_of(rope.number("beta_fast", 32)), pair_of(rope.number("beta_slow", 1))
    if rope.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    high += 0.001 if low == high else 0
    squeezed = np.clip((np.arange(len(plain)) - low) / (high - low), 0, 1)
    frequencies = plain / factor * squeezed + plain * (1 - squeezed)
    return frequencies, rope.number("attention_factor", _sharpness(rope, factor))


def _sharpness(rope: Options, factor: float) -> float:
    weight, weight_of_all = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    if weight and weight_of_all:
        return yarn_magnitude(factor, weight) / yarn_magnitude(factor, weight_of_all)
    return yarn_magnitude(factor, 1.0)


def yarn_magnitude(factor: float, weight: float) -> float:
    """Return the factor of queries and keys in a context that became longer by `factor`."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _longrope(scaling: Scaling) -> tuple[Array, float]:
    """Divide by what was searched for (Ding et al. 2024); which table, the module says."""
    rope, plain = scaling.rope, scaling.plain
    is_long = scaling.context_length > scaling.original_length
    name = "long_factor" if is_long else "short_factor"
    rope.use("long_factor", "short_factor", "factor")
    divisors = np.array(rope.numbers(name))
    if len(divisors) != len(plain):
        rope.refuse(name, f"must hold {len(plain)} numbers")
        divisors = np.ones(len(plain))
    growth = math.log(max(scaling.factor, 1.0)) / math.log(scaling.original_length)
    return plain / divisors, rope.number("attention_factor", math.sqrt(1 + growth))


SCALINGS: dict[str, Callable[[Scaling], tuple[Array, float]]] = {
    "default": _plain,
    "dynamic": _dynamic,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,  # its first name
}


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


def limit_context(config: Options, context_length: int | None) -> tuple[str, ...]:
    """Limit the `config` of a language model to `context_length` tokens; without one, to the length
    that is read exactly. Return notes for the person who exports it.
    """
    border, whole = _border_of_longrope(config), config.get("max_position_embeddings")
    if context_length is not None:
        set_context_length(config, context_length)
        is_exact = border is None or context_length <= border
        return () if is_exact else (LONG.format(border=border, length=context_length),)
    if border is None:
        return ()
    set_context_length(config, border)
    return (CAPPED.format(border=border, whole=whole),)


def set_context_length(config: Options, context_length: int) -> None:
    """Set the context length in the `config` of a language model. Scalings of positions stay as
    they are, except that LongRoPE uses its short table up to the length where the long one begins.
    A length beyond the model's own is a problem.
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
    config.default_to(n_positions=whole)  # of a table of positions
    config.values["max_position_embeddings"] = context_length


def _border_of_longrope(config: Options) -> int | None:
    """Return the longest text that the short table rotates, if longer texts have another table."""
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
    """Return the sections with scalings: one for all layers, or one for each kind of layer."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = config.values.get(name)
        if isinstance(rope, dict):
            config.values[name] = rope = dict(rope)
            yield from _copy_sections(rope)
            yield rope


def _copy_sections(rope: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, inner in rope.items():
        if isinstance(inner, dict):
            rope[kind] = dict(inner)
            yield rope[kind]
