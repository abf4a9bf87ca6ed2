"""Places a segment's tags among the words of its translation, by word alignment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from serving.text.alignment import Array
from serving.text.markup.tag_tree import Tag

_PUNCTUATION_WEIGHT = 0.5  # attention to punctuation says little of its place
_TIE = 1e-3  # so that a word that came of nothing in particular belongs to no tag
_FORBIDDEN = -1e6
_DISTANCE_COST = 0.25  # of each word between a line break and its proportional place
_EMPTY_COST = 10.0  # of a pair without a word, so that it has one where there are enough
_NEVER = -1e9


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """How much the words of a translation came of those of its source.

    matrix: [target words, source words], f64.
    source_is_word, target_is_word: False for punctuation.
    """

    matrix: Array
    source_is_word: Array
    target_is_word: Array

    @property
    def num_target(self) -> int:
        return len(self.matrix)

    def shares(self, low: int, high: int, start: int, end: int) -> Array:
        """Return how much the target's words [low, high) came of each of the source's words
        [start, end): words of words, punctuation of punctuation.

        The result is [target words, source words]; rows sum to 1 or, of punctuation, to less.
        """
        part = self.matrix[low:high, start:end].copy()
        same_kind = self.target_is_word[low:high, None] == self.source_is_word[None, start:end]
        part[~same_kind] = 0
        part /= np.maximum(part.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        weights = np.where(self.target_is_word[low:high], 1.0, _PUNCTUATION_WEIGHT)
        shares: Array = part * weights[:, None]
        return shares


def place_tags(root: Tag, alignment: WordAlignment, line_starts: Sequence[int]) -> None:
    """Set `low` and `high` of each tag in the root. Pairs of tags nest as they did, and each is
    around a word if there are enough.

    line_starts: the words before which a line may break.
    """
    root.low, root.high = 0, alignment.num_target
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        pairs = [tag for tag in parent.inner if not tag.is_point]
        if len(pairs) == 1 and parent is not root and _has_same_words(pairs[0], parent):
            pairs[0].low, pairs[0].high = parent.low, parent.high
        elif pairs:
            _place_pairs(parent, pairs, alignment)
        placed_pairs = [pair for pair in pairs if pair.low < pair.high]
        _place_line_breaks(parent, placed_pairs, alignment, line_starts)
        _place_points(parent, placed_pairs, alignment)
        parent.inner.sort(key=lambda tag: (tag.low, tag.low < tag.high))
        waiting += pairs
    _place_ranges(root, alignment)


def _has_same_words(pair: Tag, parent: Tag) -> bool:
    """Return whether a pair is around all that its parent is around."""
    words = (pair.start, pair.end, pair.begins_earlier, pair.ends_later)
    return words == (parent.start, parent.end, parent.begins_earlier, parent.ends_later)


def _place_ranges(root: Tag, alignment: WordAlignment) -> None:
    """Put the two points of each range around the words that came of those between them, as near
    as the pairs that they stand in allow.
    """
    parents = {id(tag): parent for parent in _parents(root) for tag in parent.inner}
    starts = [tag for parent in _parents(root) for tag in parent.inner if tag.range_end]
    places = {id(parent): _places_in(parent) for parent in _parents(root)} if starts else {}
    is_start: set[int] = set()
    for start in starts:
        end = start.range_end
        if end is None or id(end) not in parents or start.start >= end.start:
            continue
        low, high = _range_words(start.start, end.start, alignment)
        low = _nearest_place(low, places[id(parents[id(start)])])
        start.low = start.high = low
        high = _nearest_place(max(high, low + 1), places[id(parents[id(end)])], low + 1)
        end.low = end.high = high
        if low < high:  # else there is no word between what their pairs allow
            start.opening_attaches, end.opening_attaches = False, True
            is_start.add(id(start))
    for parent in _parents(root) if starts else ():
        parent.inner.sort(key=lambda tag: (tag.low, tag.low < tag.high, id(tag) in is_start))


def _parents(root: Tag) -> Iterator[Tag]:
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        yield parent
        waiting += [tag for tag in parent.inner if tag.inner]


def _range_words(start: int, end: int, alignment: WordAlignment) -> tuple[int, int]:
    """Return between which target words lie those that came of the source's [start, end)."""
    shares = alignment.shares(0, alignment.num_target, 0, len(alignment.source_is_word))
    within = shares[:, start:end].sum(axis=1)
    outside = shares.sum(axis=1) - within + _TIE
    runs = find_best_runs(within[None], np.tile(outside, (2, 1)))
    return runs.lows[0], runs.highs[0]


def _places_in(parent: Tag) -> list[int]:
    """Return the places between words in the parent and in none of its pairs."""
    pairs = [tag for tag in parent.inner if tag.low < tag.high]
    return _allowed_places(range(parent.low, parent.high + 1), pairs)


def _nearest_place(place: int, places: Sequence[int], least: int = 0) -> int:
    """Return the nearest of the places, if possible from `least` on."""
    return min(
        places, key=lambda candidate: (candidate < least, abs(candidate - place), -candidate)
    )


def _place_pairs(parent: Tag, pairs: Sequence[Tag], alignment: WordAlignment) -> None:
    shares = alignment.shares(parent.low, parent.high, parent.start, parent.end)
    within = np.array(
        [shares[:, m.start - parent.start : m.end - parent.start].sum(axis=1) for m in pairs]
    )
    order = _sort_pairs(pairs, within)
    pairs = [pairs[number] for number in order]
    outside = _outside_gains(parent, pairs, shares)
    runs = find_best_runs(within[order], outside)
    for pair, low, high in zip(pairs, runs.lows, runs.highs, strict=True):
        pair.low, pair.high = parent.low + low, parent.low + high
    for number, pair in enumerate(pairs):
        least = pairs[number - 1].high if number else parent.low
        most = pairs[number + 1].low if number + 1 < len(pairs) else parent.high
        _fit_punctuation(pair, least, most, alignment)


def _fit_punctuation(pair: Tag, least: int, most: int, alignment: WordAlignment) -> None:
    """Leave punctuation at the ends of a pair's words out of it, or take it in, as in the source.

    least, most: the words that it may be around.
    """
    words = np.flatnonzero(alignment.target_is_word[pair.low : pair.high]) + pair.low
    source_words = np.flatnonzero(alignment.source_is_word[pair.start : pair.end]) + pair.start
    if not (words.size and source_words.size):
        return
    belongs = _belonging_marks(pair, alignment)
    if not pair.begins_earlier:
        target_low = max(int(words[0] - (source_words[0] - pair.start)), least)
        low = max(pair.low, target_low)
        while low == pair.low > target_low and belongs[pair.low - 1]:
            low = pair.low = pair.low - 1
        pair.low = low
    if not pair.ends_later:
        target_high = min(int(words[-1] + pair.end - source_words[-1]), most)
        high = min(pair.high, target_high)
        while high == pair.high < target_high and belongs[pair.high]:
            high = pair.high = pair.high + 1
        pair.high = high


def _belonging_marks(pair: Tag, alignment: WordAlignment) -> list[bool]:
    """Return of each target word whether it is punctuation that came most of that of the pair."""
    matrix = np.where(alignment.source_is_word, 0, alignment.matrix)
    within = matrix[:, pair.start : pair.end].sum(axis=1)
    came_of_pair: Array = ~alignment.target_is_word & (2 * within > matrix.sum(axis=1))
    return list(came_of_pair)


def _sort_pairs(pairs: Sequence[Tag], within: Array) -> list[int]:
    """Return the numbers of the pairs in the order of the middles of what came of them."""
    places = np.arange(within.shape[1])
    weights = within.sum(axis=1)
    middles = (within @ places) / np.maximum(weights, np.finfo(float).tiny)
    for number in np.flatnonzero(weights == 0):
        middles[number] = middles[number - 1] if number else -1

    def key(number: int) -> tuple[bool, float]:
        return pairs[number].ends_later, 0 if pairs[number].begins_earlier else middles[number] + 1

    return sorted(range(len(pairs)), key=key)


def _outside_gains(parent: Tag, pairs: Sequence[Tag], shares: Array) -> Array:
    """Return how much each word belongs to no pair: before, between and after them."""
    is_outside = np.ones(parent.end - parent.start, bool)
    for pair in pairs:
        is_outside[pair.start - parent.start : pair.end - parent.start] = False
    alone = shares[:, is_outside].sum(axis=1) + _TIE
    outside = np.tile(alone if is_outside.any() else alone + _FORBIDDEN, (len(pairs) + 1, 1))
    if pairs[0].begins_earlier:
        outside[0] = 2 * _FORBIDDEN
    if pairs[-1].ends_later:
        outside[-1] = 2 * _FORBIDDEN
    return outside


def _place_line_breaks(
    parent: Tag, pairs: Sequence[Tag], alignment: WordAlignment, line_starts: Sequence[int]
) -> None:
    """Put line breaks so that the words of each line came most of those of the source's line; no
    two at one place if there are enough.
    """
    breaks = [tag for tag in parent.inner if tag.is_line_break]
    allowed = _allowed_places(range(parent.low, parent.high + 1), pairs) if breaks else []
    between = [place for place in allowed if parent.low < place < parent.high]
    places = [place for place in between if place in line_starts]
    if len(places) < len(breaks):
        places = between
    inner = [tag for tag in breaks if parent.start < tag.start < parent.end]
    costs = _break_costs(inner[: len(places)], places, parent, alignment)
    chosen = iter([places[number] for number in find_cheapest_places(costs)])
    for tag in breaks:
        default = allowed[0] if tag.start == parent.start else allowed[-1]
        tag.low = tag.high = next(chosen, default) if tag in inner else default


def _break_costs(
    breaks: Sequence[Tag], places: Sequence[int], parent: Tag, alignment: WordAlignment
) -> Array:
    """Return what it costs to put each break at each place: how much of the words before it came
    of what follows the break, and the other way round, and how far it is from its proportional
    place.

    The result is [breaks, places].
    """
    part = alignment.matrix[parent.low : parent.high, parent.start : parent.end]
    costs = np.empty((len(breaks), len(places)))
    offsets = np.array(places, int) - parent.low
    for number, tag in enumerate(breaks):
        word = tag.start - parent.start
        too_early = np.cumsum([0, *part[:, word:].sum(axis=1)])
        too_late = np.cumsum([0, *part[::-1, :word].sum(axis=1)])[::-1]
        distances = np.abs(offsets - len(part) * word / part.shape[1])
        costs[number] = (too_early + too_late)[offsets] + _DISTANCE_COST * distances
    return costs


def _place_points(parent: Tag, pairs: Sequence[Tag], alignment: WordAlignment) -> None:
    """Put points between words, in the parent and in no pair. Of points side by side the place is
    searched once.
    """
    points = [tag for tag in parent.inner if tag.is_point and not tag.is_line_break]
    places = _allowed_places(range(parent.low, parent.high + 1), pairs) if points else []
    places_of: dict[tuple[int, bool, bool], int] = {}
    for point in points:
        key = (point.start, point.opening_attaches, point.needs_space)
        if key not in places_of:
            places_of[key] = _point_place(point, parent, places, alignment)
        point.low = point.high = places_of[key]


def _point_place(point: Tag, parent: Tag, places: Sequence[int], alignment: WordAlignment) -> int:
    """Return the place between words whose neighbours came most of the point's neighbours."""
    if point.start == parent.start and not parent.begins_earlier:
        return places[0]
    if point.start == parent.end and not parent.ends_later:
        return places[-1]
    fits = _fits_between(point, alignment)
    return max(places, key=lambda place: fits[place])


def _allowed_places(places: range, pairs: Sequence[Tag]) -> list[int]:
    allowed = set(places)
    for pair in pairs:
        low = pair.low if pair.begins_earlier else pair.low + 1
        high = pair.high + 1 if pair.ends_later else pair.high
        allowed -= {*range(low, high)}
    return sorted(allowed)


def _fits_between(point: Tag, alignment: WordAlignment) -> Array:
    """Return of each place between words, from before the first to after the last, how much the
    words beside it came of the words beside the point. A word that the point attaches to counts
    four times as much as one with a space between.
    """
    num_words, num_source = alignment.matrix.shape
    before_weight = 1.0 if point.opening_attaches or point.needs_space else 0.25
    after_weight = 1.0 if point.needs_space else 0.25 if point.opening_attaches else 1.0
    fits = np.zeros(num_words + 1)
    if point.start > 0:
        fits[1:] += before_weight * alignment.matrix[:, point.start - 1]
    if point.start < num_source:
        fits[:-1] += after_weight * alignment.matrix[:, point.start]
    return fits


@dataclass(frozen=True, slots=True)
class WordRuns:
    """The words [low, high) that belong to each of several tags."""

    lows: tuple[int, ...]
    highs: tuple[int, ...]


def find_best_runs(within: Array, outside: Array) -> WordRuns:
    """Return the runs of words, in the order of the tags, that together belong most to their tags,
    with the words between that belong most to none: the best path of Viterbi's algorithm.

    within: how much each word belongs to each tag [tags, words].
    outside: how much it belongs to none, before the first tag, after the first, and so on
        [tags + 1, words].
    """
    num_tags, num_words = within.shape
    gains = np.empty((2 * num_tags + 1, num_words))
    gains[0::2], gains[1::2] = outside, within
    choices = [_Choices(column) for column in gains.T.tolist()]
    scores = [0.0] + [_NEVER] * (2 * num_tags)
    for choice in choices:
        scores = choice.extend(scores)
    last = 2 * num_tags
    _, state = max((scores[last], last), _entry_scores(scores)[last])
    states = []
    for choice in reversed(choices):
        states.append(state)
        state = choice.came_from[state]
    return _runs(states[::-1], num_tags)


class _Choices:
    """The steps of the best paths at one word.

    States are, in their order: before the first tag, in it, between it and the second, and so on.
    """

    def __init__(self, gains: Sequence[float]) -> None:
        self._gains = gains
        self.came_from: list[int] = []

    def extend(self, scores: Sequence[float]) -> list[float]:
        """Return the score of the best path to each state at this word, from those at the last."""
        entered = _entry_scores(scores)
        best = []
        for state, gain in enumerate(self._gains):
            score, origin = max((scores[state], state), entered[state])
            self.came_from.append(origin)
            best.append(score + gain)
        return best


def _entry_scores(scores: Sequence[float]) -> list[tuple[float, int]]:
    """Return of each state the best score and state to come from, of the earlier ones, without a
    word in any state between.
    """
    best, entered = (_NEVER, 0), []
    for state, score in enumerate(scores):
        entered.append(best)
        skipped = (best[0] - _EMPTY_COST * (state % 2), best[1])
        best = max(skipped, (score, state))
    return entered


def _runs(states: Sequence[int], num_tags: int) -> WordRuns:
    lows, highs = [], []
    for tag in range(num_tags):
        state = 2 * tag + 1
        lows.append(sum(word_state < state for word_state in states))
        highs.append(sum(word_state <= state for word_state in states))
    return WordRuns(tuple(lows), tuple(highs))


def find_cheapest_places(costs: Array) -> list[int]:
    """Return a place for each break, in rising order, so that the sum of their costs is least.

    costs: of each break at each place [breaks, places]; there are no more breaks than places.
    """
    least_before = np.zeros(costs.shape[1] + 1)  # of the breaks so far, all before each place
    ways = []
    for break_costs in costs:
        ways.append(least_before[:-1] + break_costs)
        least_before = np.concatenate(([np.inf], np.minimum.accumulate(ways[-1])))
    places: list[int] = []
    end = costs.shape[1]
    for way in reversed(ways):
        end = int(np.argmin(way[:end]))
        places.append(end)
    return places[::-1]
