"""Finds the best next tokens of rows, exactly: in the step graph's window where it suffices, else
in all of the row's scores.
"""

import numpy as np

from serving.arrays import Array
from serving.engine.scores import Scores, best_of_all


def best_tokens(scores: Scores, rows: Array, count: int) -> tuple[Array, Array]:
    """Return values f64 and token ids i64, each [len(rows), count], best first: what processors
    have made of the log-probabilities, where they have. A token that must not come has -inf.
    """
    window = scores.top_ids.shape[1]
    if count > window:
        return best_of_all(_all_values(scores, rows), count)
    if scores.edited is None:
        return scores.top_logp[rows, :count].astype(np.float64), scores.top_ids[rows, :count]
    return _best_of_edited(scores, rows, count)


def _all_values(scores: Scores, rows: Array) -> Array:
    values: Array = scores.logp_of(rows)[rows]
    if scores.edited is not None:
        is_edited = scores.edited.is_edited[rows]
        values[is_edited] = scores.edited.logp[rows[is_edited]]
    return values


def _best_of_edited(scores: Scores, rows: Array, count: int) -> tuple[Array, Array]:
    """Rank the window by its new values. It suffices where none outside it has risen, and as many
    of it as are asked for are no worse than all outside were.
    """
    assert scores.edited is not None
    ids, values = scores.top_ids[rows].copy(), scores.top_logp[rows].astype(np.float64)
    is_edited = scores.edited.is_edited[rows]
    values[is_edited] = scores.edited.logp[rows[is_edited, None], ids[is_edited]]
    order = np.argsort(-values, axis=1, kind="stable")
    values = np.take_along_axis(values, order, axis=1)[:, :count]
    ids = np.take_along_axis(ids, order, axis=1)[:, :count]
    is_open = is_edited & (
        scores.edited.is_raised[rows] | (values[:, -1] < scores.top_logp[rows, -1])
    )
    if is_open.any():
        values[is_open], ids[is_open] = best_of_all(_all_values(scores, rows[is_open]), count)
    return values, ids
