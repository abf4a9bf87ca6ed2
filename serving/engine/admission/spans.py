"""Says how long a source is once it is padded, and which sources are encoded together."""

from collections.abc import Iterator
from itertools import groupby

from serving.engine.generation import Generation

ENCODE_STEP = 4


def encode_span(generation: Generation) -> int:
    """Return the padded length of a source: a matter of that alone, so the encoder's numbers are
    too. A multiple of 4, coarser as it grows, at most an eighth too long from 16 on.
    """
    length = generation.num_source_tokens
    step = max(ENCODE_STEP, 1 << max(length - 1, 0).bit_length() >> 4)
    return -(-length // step) * step


def encode_groups(generations: list[Generation]) -> Iterator[list[Generation]]:
    """Split into batches of one padded length each."""
    for _, group in groupby(sorted(generations, key=encode_span), key=encode_span):
        yield list(group)
