"""The inputs of matrices that are far larger than the others, found by running a bundle.

int8 and int4 leave them in fp32 (`export/graph/blocks.py`).
"""

from collections.abc import Mapping

import numpy as np

from export.bundling.running import GraphRows
from export.graph.blocks import OBSERVED
from export.graph.writer import Array
from serving.bundle.opening import Bundle

OUTLIER_ROWS = 8  # random texts
OUTLIER_STEPS = 24  # tokens of each: some ten of 576 features were 5 to 25 times the median on all
# Above three times the median, at most 32, errors of SmolLM2 were larger: 0.035 nats of a token.
OUTLIER_FACTOR = 2.0  # of the median
MOST_OUTLIERS = 64  # columns of a matrix
EVEN_INPUTS = "attention.output"  # whose inputs are even enough: outliers made no difference


def find_outliers(bundle: Bundle) -> Mapping[str, Array]:
    """Return the indices of each matrix's outlying inputs, by the matrix's name.

    The bundle's step graph tells how large inputs are, as `export.graph.blocks` writes it if
    asked to.
    """
    manifest = bundle.manifest
    num_steps = min(OUTLIER_STEPS, manifest.limits.max_target_tokens)
    ids = np.random.default_rng(0).integers(manifest.vocab_size, size=(num_steps, OUTLIER_ROWS))
    rows, largest = GraphRows(bundle, [[]] * OUTLIER_ROWS), dict[str, Array]()
    for step in ids.tolist():
        rows.read([[token_id] for token_id in step])
        for name, observed in rows.outputs.items():
            if name.startswith(OBSERVED):
                observed = observed.max(axis=0)
                largest[name] = np.maximum(largest.get(name, observed), observed)
    by_name = {name.removeprefix(OBSERVED): observed for name, observed in largest.items()}
    return {
        name: _outlying_columns(observed)
        for name, observed in by_name.items()
        if not name.endswith(EVEN_INPUTS)
    }


def _outlying_columns(largest: Array) -> Array:
    """Number those of ``largest``, which is what each input came to at most."""
    order = np.argsort(-largest, kind="stable")[:MOST_OUTLIERS]
    return np.sort(order[largest[order] > OUTLIER_FACTOR * np.median(largest)])
