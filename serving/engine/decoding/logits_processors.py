"""Edit the scores of rows whose requests ask for it; other rows cost nothing.

A row's scores depend on that row alone. They are first changed (`logit_edits.py`), then tokens are
banned. A banned token stays banned, so the order of bans does not matter.
"""

from collections.abc import Iterable

import numpy as np

from serving.bundle.manifest import Manifest
from serving.engine.arrays import Array
from serving.engine.decoding.logit_edits import (
    Penalties,
    RowProcessors,
    StopGrowth,
    Timestamps,
    apply_penalties,
    make_row_processors,
)
from serving.engine.decoding.scores import NOTHING, Edited, Scores, best_of_all
from serving.engine.generation import Generation
from serving.engine.rows import Batch, Decision, RowObserver
from serving.requests.request import Matcher


class Exclusions:
    """Tokens of a bundle that are excluded by default; tokens that end its targets are never among
    them.

    is_excluded: bool [vocabulary]
    are_any: whether a token is excluded
    """

    def __init__(self, manifest: Manifest, token_ids: Iterable[int]) -> None:
        self.is_excluded = np.zeros(manifest.vocab_size, bool)
        self.is_excluded[list(token_ids)] = True
        self.is_excluded[list(manifest.tokens.stop)] = False
        self._ids = np.flatnonzero(self.is_excluded)
        self.are_any = len(self._ids) > 0

    def apply(self, scores: Scores) -> None:
        """Remove the excluded tokens from the scores."""
        scores.exclude(self._ids)
        is_hit = self.is_excluded[scores.top_ids].any(axis=1)
        rows = np.flatnonzero(is_hit & ~scores.is_chosen)
        if len(rows):
            _replace_window(scores, rows)

    def requested_ids(self, generation: Generation) -> Array:
        """Return the excluded tokens that a request allows or prefers, and may therefore
        get: i64.
        """
        processors = generation.request.processors
        preferred_ids = [token_id for token_id, bias in processors.logit_bias if bias > 0]
        named_ids = np.unique([*preferred_ids, *(processors.allowed_ids or ())]).astype(np.int64)
        requested_ids: Array = named_ids[self.is_excluded[named_ids]]
        return requested_ids


class Processors(RowObserver):
    """The logits processors of each row. Forced tokens count as prompt from the beginning.

    rows: the processors of each row that has any.
    """

    def __init__(self, slots: int, vocab_size: int, exclusions: Exclusions | None = None) -> None:
        self._vocab_size = vocab_size
        self._exclusions = exclusions
        self.rows: dict[int, RowProcessors] = {}
        self._logp = np.zeros((slots, vocab_size), np.float32)
        self._mask = np.zeros(vocab_size, bool)

    def on_add(self, row: int, generation: Generation) -> None:
        if not generation.has_processors and generation.request.constraint is None:
            return
        requested_ids = self._exclusions.requested_ids(generation) if self._exclusions else NOTHING
        self._put(row, make_row_processors(generation, self._vocab_size, requested_ids))

    def on_copy(self, source: int, target: int) -> None:
        processors = self.rows.get(source)
        self._put(target, processors and processors.fork())

    def on_move(self, source: int, target: int) -> None:
        self._put(target, self.rows.pop(source, None))

    def on_remove(self, row: int) -> None:
        self.rows.pop(row, None)

    def on_step(self, decision: Decision) -> None:
        for row, processors in self.rows.items():
            if not decision.is_forced[row]:
                processors.accept(int(decision.token_ids[row]))

    def edit(self, scores: Scores, ending_rows: Array = NOTHING) -> None:
        """Set `scores.edited` if a row has scores to edit at this step, or must end with it."""
        is_open = ~scores.is_chosen
        penalties: list[tuple[int, Penalties]] = []
        bans: list[tuple[int, Array]] = []
        matchers: list[tuple[int, Matcher]] = []
        growths: list[tuple[int, StopGrowth]] = []
        timestamps: list[tuple[int, Timestamps]] = []
        normalised_rows: list[int] = []
        for row, processors in self.rows.items():
            if is_open[row]:
                if processors.penalties:
                    penalties.append((row, processors.penalties))
                bans += [(row, banned_ids) for banned_ids in processors.banned_ids()]
                matchers += [(row, matcher) for matcher in processors.matchers]
                if processors.stop_growth is not None and processors.stop_growth.is_active:
                    growths.append((row, processors.stop_growth))
                if processors.timestamps is not None:
                    timestamps.append((row, processors.timestamps))
                if processors.normalises:
                    normalised_rows.append(row)
        rows = {row for row, _ in (*penalties, *bans, *matchers, *growths, *timestamps)}
        rows.update(ending_rows.tolist())
        if not rows:
            return
        scores.edited = edited = self._begin(scores, rows)
        if penalties:
            _penalize(edited, scores.log_normaliser, penalties)
        if bans:
            _ban(edited, bans, scores.fewest_scored)
        for row, matcher in matchers:  # dense: a grammar's mask covers the whole vocabulary
            matcher.fill_mask(self._mask)
            np.copyto(edited.logp[row], -np.inf, where=~self._mask)
            edited.is_dead[row] = np.isneginf(edited.logp[row].max())
        for row, stop_growth in growths:
            stop_growth.apply(edited.logp[row], float(scores.log_normaliser[row]))
            edited.is_raised[row] = True
        for row, rules in timestamps:
            edited.is_dead[row] |= not rules.apply(edited.logp[row])
        for row in normalised_rows:
            if edited.is_edited[row] and not edited.is_dead[row]:
                _normalise(edited, row)
                edited.is_reported[row] = self.rows[row].reports_normalised

    def _put(self, row: int, processors: RowProcessors | None) -> None:
        if processors is None:
            self.rows.pop(row, None)
        else:
            self.rows[row] = processors

    def _begin(self, scores: Scores, rows: set[int]) -> Edited:
        is_edited, is_raised, is_dead, is_reported = np.zeros((4, scores.num_rows), bool)
        is_edited[list(rows)] = True
        logp = scores.logp_of(np.flatnonzero(is_edited))
        for row in rows:
            self._logp[row] = logp[row]
            requested_ids = self.rows[row].requested_ids if row in self.rows else NOTHING
            if len(requested_ids):
                same_row = np.full(len(requested_ids), row)
                self._logp[row, requested_ids] = scores.of_tokens(same_row, requested_ids)
                is_raised[row] = True
        return Edited(is_edited, is_raised, is_dead, is_reported, self._logp[: scores.num_rows])


def _penalize(
    edited: Edited, log_normaliser: Array, penalties: list[tuple[int, Penalties]]
) -> None:
    scores = apply_penalties(edited.logp, log_normaliser, penalties)
    edited.logp[scores.rows, scores.token_ids] = scores.after
    edited.is_raised[scores.rows[scores.after > scores.before]] = True


def _ban(edited: Edited, bans: list[tuple[int, Array]], fewest_scored: int) -> None:
    rows = np.repeat([row for row, _ in bans], [len(token_ids) for _, token_ids in bans])
    edited.logp[rows, np.concatenate([token_ids for _, token_ids in bans])] = -np.inf
    num_bans = np.bincount(rows, minlength=len(edited.logp))
    for row in np.flatnonzero(num_bans >= fewest_scored):
        edited.is_dead[row] = np.isneginf(edited.logp[row].max())


def _normalise(edited: Edited, row: int) -> None:
    logp = edited.logp[row]
    highest = logp.max()
    logp -= highest + np.log(np.exp(logp - highest).sum(dtype=np.float64)).astype(np.float32)
    edited.is_raised[row] = True


def _replace_window(scores: Scores, rows: Array) -> None:
    """Replace the window by the best remaining tokens, without writing to the graph's memory."""
    window = scores.top_ids.shape[1]
    top_logp, top_ids = scores.top_logp.copy(), scores.top_ids.copy()
    top_logp[rows], top_ids[rows] = best_of_all(scores.logp_of(rows)[rows], window)
    scores.top_logp, scores.top_ids = top_logp, top_ids


def rows_at_their_end(batch: Batch, num_rows: int) -> Array:
    """Return the rows that must take their last token now: i64 [rows]."""
    is_last = batch.num_generated[:num_rows] + 1 == batch.max_generated[:num_rows]
    rows = np.flatnonzero(is_last & (batch.num_forced[:num_rows] == 0))
    has_end = [batch.generations[row].last_id is not None for row in rows]
    return rows[np.array(has_end, bool)]


def force_ends(scores: Scores, batch: Batch, rows: Array) -> None:
    """Ban all tokens of edited rows but the one that must be their last, independent of
    constraints; the hypothesis's score does not change.
    """
    edited = scores.edited
    if edited is None:
        return
    for row in rows:
        edited.logp[row] = -np.inf
        edited.logp[row, batch.generations[row].last_id] = 0
    edited.is_raised[rows], edited.is_dead[rows] = True, False
