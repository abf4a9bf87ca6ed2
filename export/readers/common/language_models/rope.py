"""Reads rotary position embeddings from `config.json`: one angle a position for each pair.

Every kind of scaling comes down to a table of frequencies, radians a position, and what the rotated
numbers are stretched by. Formulas are those of transformers/modeling_rope_utils.py. Two kinds there
change with the length of a text. A dynamic one is no other than the plain one up to the length that
the model was made for, beyond which we never go. LongRoPE has a short and a long table, of which
transformers takes the long one for what is read at once beyond `original_max_position_embeddings`.
Here a model has one table: the short one unless it may read more than that. That it may not, unless
this is asked for, is the business of `export.readers.common.context`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from export.readers.common.options import Options
from models.arrays import Array

LARGEST_HEAD = 2**16


class Rotary(NamedTuple):
    """frequencies: of every pair that is rotated."""

    frequencies: tuple[float, ...]
    magnitude: float

    @property
    def options(self) -> dict[str, object]:
        """As our configurations have them."""
        found = {"rotary_frequencies": self.frequencies, "rotary_magnitude": self.magnitude}
        return {"imported": found}


class Scaling(NamedTuple):
    """Holds a section of `config.json`, and the plain frequencies that it scales."""

    rope: Options
    plain: Array
    theta: float
    context_length: int
    original_length: int

    @property
    def factor(self) -> float:
        """Tell how many times longer texts became."""
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
    """Compute the table that `rope`, a section of `config`, asks for.

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
            found = scale(Scaling(rope, plain, theta, context_length, original))
    except (ArithmeticError, ValueError) as error:
        rope.problems.append(f"{rope.file}: cannot be computed: {error}")
        found = plain, 1.0
    frequencies, magnitude = found
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
        """Tell which pair turns so often over the original length."""
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
    def of(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    weight, weight_of_all = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    return of(weight) / of(weight_of_all) if weight and weight_of_all else of(1.0)


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
