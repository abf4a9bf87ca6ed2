"""Writes the edits of rows as the select graph reads them: as many for each row, and for each a
token, what is added to its score, what it is penalised by and what is taken off.
"""

from dataclasses import dataclass

import numpy as np

from serving.arrays import Array
from serving.engine.processing.changes import BIAS, PENALTY
from serving.engine.processing.row import RowProcessors

EDITS = {
    "edit_ids": "int64",
    "edit_bias": "float64",
    "edit_penalty": "float64",
    "edit_toll": "float64",
}


@dataclass(frozen=True, slots=True)
class RowEdits:
    """token_ids: i64 [edits], each once. columns: f64 [3, edits], as those of `Changes`: bias,
    penalty, toll; a bias of -inf is a ban.
    """

    token_ids: Array
    columns: Array


def edits_of(processors: RowProcessors, is_excluded: Array) -> RowEdits:
    """Gather what a row does to its scores; an excluded token stays so where it is not asked for.

    is_excluded: bool [vocabulary].
    """
    none = np.zeros(0, np.int64)
    banned = np.unique(np.concatenate([none, *processors.banned()]))
    bans = np.zeros((3, len(banned)))
    bans[BIAS], bans[PENALTY] = -np.inf, 1
    if processors.changes is None:
        return RowEdits(banned, bans)
    token_ids = processors.changes.token_ids
    is_asked = np.isin(token_ids, processors.asked_ids)
    is_kept = (is_asked | ~is_excluded[token_ids]) & ~np.isin(token_ids, banned)
    columns = processors.changes.columns[:, is_kept]
    return RowEdits(
        np.concatenate([token_ids[is_kept], banned]), np.concatenate([columns, bans], axis=1)
    )


def write_edits(rows: dict[int, RowEdits], neutral_id: int, arrays: dict[str, Array]) -> None:
    """Fill arrays [rows, edits]. What is left of a row repeats its first edit, or where it has none
    leaves the neutral token, which is never excluded, as it is.
    """
    for name, neutral in zip(EDITS, (neutral_id, 0, 1, 0), strict=True):
        arrays[name][...] = neutral
    for row, edits in rows.items():
        for name, values in zip(EDITS, (edits.token_ids, *edits.columns), strict=True):
            arrays[name][row, : len(values)], arrays[name][row, len(values) :] = values, values[0]
