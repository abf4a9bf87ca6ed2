"""Write what the kernels compute of the same inputs everywhere: `python -m
tests.serving.kernels.results LIBRARY FILE`, a file of numpy's.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from serving.kernels import library
from tests.serving.kernels import test_attention, test_block_linear, test_choice, test_linear
from tests.serving.kernels.models import Array, native

ROWS = (1, 2, 3, 5, 8, 17)


def results() -> Iterator[tuple[str, Array]]:
    """Yield a name and the values of each output."""
    layers = {"linear": test_linear.layer(130, 65)}
    layers |= {f"blocks{bits}": test_block_linear.layer(130, 65, bits=bits)[0] for bits in (8, 4)}
    for name, model in layers.items():
        run = native(model)
        for rows in ROWS:
            yield f"{name}-{rows}", run({"x": test_linear.vectors(rows, 130)})[0]
    for heads, kv_heads, size in test_attention.HEADS:
        run = native(test_attention.self_attention(heads, kv_heads, size))
        for rows in (1, 3):
            feeds = test_attention.self_inputs(heads, kv_heads, size, rows, tokens=3)
            yield f"attention-{heads}-{kv_heads}-{size}-{rows}", run(feeds)[0]
    for columns in (65, 4097):
        logp, ids, normaliser = test_choice.choose(test_choice.scores_of(3, columns))
        yield f"choice-{columns}", np.concatenate([logp, ids, normaliser[:, None]], axis=1)


if __name__ == "__main__":
    library.LIBRARY = Path(sys.argv[1])
    library.native_kernels.cache_clear()
    if library.native_kernels().path is None:
        sys.exit(library.native_kernels().description)
    np.savez(sys.argv[2], **dict(results()))  # type: ignore[arg-type]
