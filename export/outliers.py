"""Which inputs of a language model's matrices are too large to share a scale with others.

A few features of a trained Transformer are tens of times as large as the rest (LLM.int8(), Dettmers
et al. 2022), and the first token of a text has some that are thousands of times as large. Rounded
to 8 bits they leave little of the features beside them, and of their own weights the rounding
errors count most. Which they are depends on the model, hardly on the text: random tokens tell.
"""

from collections.abc import Mapping

import numpy as np

from export.graph import Array
from export.quantise import OBSERVED, Outliers
from export.rows import Rows
from serving.bundle.opening import Bundle

NUM_ROWS = 8
NUM_STEPS = 24
LOUD = 2.0  # of the median
MANY = 64  # of a matrix's inputs: too many to be multiplied in fp32
VERY_LOUD = 16.0  # of the median: even for levels of levels
MOST = 16  # columns of a matrix that are multiplied in fp32
SMALLEST = 1e-12
EVEN = "attention.output"  # whose inputs are even enough: they gained nothing


def outliers_of(bundle: Bundle) -> Mapping[str, Outliers]:
    """By the names of matrices, their outlying inputs.

    The bundle's step graph tells how large inputs are, as `export.quantise` writes it if asked to.
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


def _outlying(largest: Array) -> Outliers:
    """largest: what each input came to at most. Where many are loud, those few count that spoil
    their weights' rounding as well.
    """
    loudness = largest / np.maximum(np.median(largest), SMALLEST)
    is_even = bool((loudness > LOUD).sum() <= MANY)
    order = np.argsort(-loudness, kind="stable")[:MOST]
    return Outliers(np.sort(order[loudness[order] > (LOUD if is_even else VERY_LOUD)]), is_even)
