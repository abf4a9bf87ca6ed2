"""Find the unit of a translation memory that is most like a segment.

Each unit is listed under each of its words. A unit that is at least 75 % like a segment of 20 words
shares 15 of them, so it is listed under one of the segment's six rarest words: nothing else is
compared (prefix filtering, Chaudhuri et al. 2006).
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from serving.pipelines.translation.memory import MemoryMatch
from serving.storage.database import Connection, Row
from serving.translation_memory.similarity import (
    EXACT,
    most_unmatched,
    num_different_numbers,
    percent,
    replace_numbers,
    word_ids,
)
from serving.translation_memory.tmx import normalize_segment, parse_inline_codes

MIN_THRESHOLD = 50  # segments that are less alike have little in common but frequent words
# An index cannot hold texts of any length: it has the first characters of each source. SQLite does
# not use it where a query names `source` as well.
INDEXED_CHARACTERS = 200
SOURCE_START = f"substr(source, 1, {INDEXED_CHARACTERS})"
_MAX_CANDIDATES = 300
_MAX_ADAPTED = 5
_MAX_VALUES = 512  # of a list in a query that can be asked in parts
Value = TypeVar("Value")


def split_values(values: Iterable[Value]) -> Iterator[list[Value]]:
    """Yield lists of values that are short enough for a query."""
    remaining = iter(values)
    while values_of_query := [*islice(remaining, _MAX_VALUES)]:
        yield values_of_query


def list_values(values: Sequence[Value]) -> tuple[str, list[Value]]:
    """Return placeholders and values for `IN (...)`. The last value is repeated until a short list
    has 1, 2, 4, 8 ... of them: so few different statements are prepared.
    """
    length = len(values)
    if length < _MAX_VALUES:
        length = 1 << (length - 1).bit_length()
    return ", ".join("?" * length), [*values, *[values[-1]] * (length - len(values))]


def best_matches(
    connection: Connection, memory: int, language: str, threshold: int, texts: Sequence[str]
) -> list[MemoryMatch | None]:
    """Return the match of each text that has the highest score, of several the one that was added
    last; None where no score reaches the threshold.
    """
    texts = [*map(normalize_segment, texts)]
    matches: dict[str, MemoryMatch | None] = {**_exact_matches(connection, memory, language, texts)}
    others = {*texts} - {*matches}
    if threshold < EXACT and others:
        num_units = _count_units(connection, memory, others)
        threshold = max(threshold, MIN_THRESHOLD)
        for text in others:
            matches[text] = _best_similar(connection, memory, language, threshold, text, num_units)
    return [matches.get(text) for text in texts]


def _exact_matches(
    connection: Connection, memory: int, language: str, texts: Iterable[str]
) -> dict[str, MemoryMatch]:
    """Return the matches of those texts that are sources of the memory."""
    sources = {*filter(is_storable, texts)}
    matches = {}
    for starts in split_values({source[:INDEXED_CHARACTERS] for source in sources}):
        places, values = list_values(starts)
        query = f"""
            SELECT source, source_xml, target, target_xml
            FROM units JOIN targets ON unit = number AND language = ?
            WHERE memory = ? AND {SOURCE_START} IN ({places})
        """
        for row in connection.rows(query, (language, memory, *values)):
            if row["source"] in sources:
                matches[row["source"]] = _match(row, EXACT, row["target"])
    return matches


def is_storable(text: str) -> bool:
    """Return whether a database can hold a text; a TMX file has no other."""
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return "\0" not in text


def _count_units(connection: Connection, memory: int, texts: Iterable[str]) -> dict[int, int]:
    """Return how many units have each word of some texts."""
    counts = {}
    for words in split_values({word for text in texts for word in word_ids(text)}):
        places, values = list_values(words)
        query = f"SELECT word, num_units FROM word_counts WHERE memory = ? AND word IN ({places})"
        for row in connection.rows(query, (memory, *values)):
            counts[row["word"]] = row["num_units"]
    return counts


def _best_similar(
    connection: Connection,
    memory: int,
    language: str,
    threshold: int,
    text: str,
    num_units: Mapping[int, int],
) -> MemoryMatch | None:
    """Return the best match of a text that is no source of the memory.

    num_units: how many units have each word. Where a number is missing or old, only the time of the
    search differs.
    """
    words = word_ids(text)
    units = []
    for row in _candidates(connection, memory, language, threshold, words, num_units):
        score = percent(words, array("I", row["words"]), threshold)
        if score >= threshold:
            units.append((score, row))
    units.sort(key=lambda unit: (-unit[0], -unit[1]["number"]))
    matches = (_adapt_numbers(row, score, text) for score, row in units[:_MAX_ADAPTED])
    best = max(matches, key=lambda match: match.score, default=None)
    return best if best is not None and best.score >= threshold else None


def _candidates(
    connection: Connection,
    memory: int,
    language: str,
    threshold: int,
    words: Sequence[int],
    num_units: Mapping[int, int],
) -> list[Row]:
    """Return the units that share one of the rarest words, those that share most first."""
    if not words:
        return []
    lengths = (-(-threshold * len(words) // 100), 100 * len(words) // threshold)
    ordered = sorted(words, key=lambda word: (num_units.get(word, 0), word))
    rarest = {*ordered[: most_unmatched(len(words), threshold) + 1]}
    places, values = list_values([*rarest])
    query = f"""
        SELECT number, source, source_xml, words, target, target_xml FROM (
            SELECT unit, count(*) AS num_shared FROM words
            WHERE memory = ? AND word IN ({places}) AND num_words BETWEEN ? AND ?
            GROUP BY unit ORDER BY num_shared DESC, unit DESC LIMIT {_MAX_CANDIDATES}
        ) AS shared JOIN units ON number = shared.unit
        JOIN targets ON targets.unit = number AND language = ?
    """
    return connection.rows(query, (memory, *values, *lengths, language))


def _adapt_numbers(row: Row, score: int, text: str) -> MemoryMatch:
    """Return a match with the numbers of a text, or with a lower score if it has others."""
    num_different = num_different_numbers(text, row["source"])
    if not num_different:
        return _match(row, score, row["target"])
    target = None
    if row["target_xml"] is None:
        target = replace_numbers(text, row["source"], row["target"])
    if target is not None:
        return _match(row, score, target)
    num_words = max(len(row["words"]) // array("I").itemsize, 1)
    return _match(row, max(score - 100 * num_different // num_words, 0), row["target"])


def _match(row: Row, score: int, target: str) -> MemoryMatch:
    parts = (row["source_xml"], row["target_xml"])
    if None in parts:
        return MemoryMatch(score, row["source"], target)
    return MemoryMatch(score, row["source"], target, *map(parse_inline_codes, parts))
