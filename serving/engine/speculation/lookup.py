"""Drafts what may come next from what came before: prompt lookup (Saxena, Prompt Lookup Decoding,
2023). Summaries, edits and loops repeat their prompt or themselves.
"""

import numpy as np

from serving.arrays import Array

NONE = -1  # no token


def look_up(tokens: Array, lengths: Array, count: int) -> Array:
    """Return `count` tokens for each row, i64 [rows, count], all NONE where there are none: those
    that followed when the row's last three tokens, or else its last two, came before; the last time
    they did. Where that was less than `count` tokens ago they are taken to go round.

    tokens: i64 [rows, capacity], of which so many are a row's: lengths, integers [rows].
    """
    known, rows = tokens[:, : lengths.max()], np.arange(len(tokens))
    last, second, third = (
        known[rows, np.maximum(lengths - back, 0)][:, None] for back in (1, 2, 3)
    )
    places = np.arange(known.shape[1])
    is_found = (known == last) & (places < lengths[:, None] - 1)
    is_found[:, 0] = False
    is_found[:, 1:] &= known[:, :-1] == second
    is_longer = np.zeros_like(is_found)
    is_longer[:, 2:] = known[:, :-2] == third
    rank = np.where(is_found, places + len(places) * is_longer, NONE)
    ends = rank.argmax(axis=1)
    period = np.maximum(lengths - 1 - ends, 1)
    following = ends[:, None] + 1 + np.arange(count) % period[:, None]
    drafts: Array = known[rows[:, None], np.minimum(following, len(places) - 1)]
    drafts[rank[rows, ends] == NONE] = NONE
    return drafts
