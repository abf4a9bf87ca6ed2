"""Which inputs of a language model's matrices are too large to share a scale with others.

A few features of a trained Transformer are tens of times as large as the rest (LLM.int8(), Dettmers
et al. 2022), and the first token of a text has some that are thousands of times as large. Rounded
to 8 bits they leave little of the features beside them, and of their own weights the rounding
errors count most. Which they are depends on the model, hardly on the text: random tokens tell.
"""

from collections.abc import Mapping

import numpy as np

from export.checking.rows import Rows
from export.graph.blocks import OBSERVED
from export.graph.writer import Array
from serving.bundle.opening import Bundle

NUM_ROWS = 8
NUM_STEPS = 24
FACTOR = 2.0  # of the median
MOST = 64  # columns of a matrix
EVEN = "attention.output"  # whose inputs are even enough: they gained nothing


def outliers_of(bundle: Bundle) -> Mapping[str, Array]:
    """By the names of matrices, the numbers of their outlying inputs.

    The bundle's step graph tells how large inputs are, as `export.graph.blocks` writes it if
    asked to.
    """
    manifest = bundle.manifest
    num_steps = min(NUM_STEPS, manifest.limits.max_target_tokens)
    ids = np.random.default_rng(0).integers(manifest.vocab_size, size=(num_steps, NUM_ROWS))
    rows, largest = Rows(bundle, [[]] * NUM_ROWS), dict[str, Array]()
    for step in ids.tolist():
        rows.read([[token_id] for token_id in step])
        for name, found in rows.outputs.items():
            if name.startswith(OBSERVED):
                found = found.max(axis=0)
                largest[name] = np.maximum(largest.get(name, found), found)
    by_name = {name.removeprefix(OBSERVED): found for name, found in largest.items()}
    return {name: _outlying(found) for name, found in by_name.items() if not name.endswith(EVEN)}


def _outlying(largest: Array) -> Array:
    """largest: what each input came to at most."""
    order = np.argsort(-largest, kind="stable")[:MOST]
    return np.sort(order[largest[order] > FACTOR * np.median(largest)])
