"""Makes the last token that a request may have the end of a target, where its bundle wants that
(`forced_eos_token_id` of Hugging Face's `generate`).
"""

import numpy as np

from serving.arrays import Array
from serving.engine.batch import Batch
from serving.engine.scores import Edited


def rows_at_their_end(batch: Batch, num_rows: int) -> Array:
    """Find those that must take it now: i64 [rows]."""
    is_last = batch.num_generated[:num_rows] + 1 == batch.max_generated[:num_rows]
    rows = np.flatnonzero(is_last & (batch.num_given[:num_rows] == 0))
    has_end = [batch.generations[row].last_id is not None for row in rows]
    return rows[np.array(has_end, bool)]


def force_ends(edited: Edited, batch: Batch, rows: Array) -> None:
    """Ban all else, whatever constrains a row; a hypothesis's score stays as it is."""
    for row in rows:
        edited.logp[row] = -np.inf
        edited.logp[row, batch.generations[row].last_id] = 0
    edited.is_raised[rows], edited.is_dead[rows] = True, False
