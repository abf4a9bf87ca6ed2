"""Find the unit of a translation memory that is most like a segment.

Each unit is listed under each of its words. A unit that is at least 75 % like a segment of 20 words
shares 15 of them, so it is listed under one of the segment's six rarest words: nothing else is
compared (prefix filtering, Chaudhuri et al. 2006).
"""

import sqlite3
from array import array
from collections.abc import Iterable

from serving.pipelines.translation.memory import MemoryMatch
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
# With these limits a lookup among 183,041 units takes 4 ms at 75 % (median; the longest 21 ms).
_MAX_CANDIDATES = 300
_MAX_ADAPTED = 5
_MAX_COUNTED = 2_000  # a word with more units than this is frequent, however many they are
_SELECT_UNIT = "SELECT * FROM units JOIN targets ON unit = number AND language = ? WHERE TRUE"


def best_match(
    database: sqlite3.Connection, memory: int, language: str, threshold: int, text: str
) -> MemoryMatch | None:
    """Return the match with the highest score, of several the one that was added last."""
    text = normalize_segment(text)
    query = f"{_SELECT_UNIT} AND memory = ? AND source = ?"
    row = database.execute(query, (language, memory, text)).fetchone()
    if row is not None:
        return _match(row, EXACT, row["target"])
    threshold = max(threshold, MIN_THRESHOLD)
    rows = _similar_units(database, memory, language, threshold, text) if threshold < EXACT else ()
    matches = (_adapt_numbers(row, score, text) for score, row in rows)
    best = max(matches, key=lambda match: match.score, default=None)
    return best if best is not None and best.score >= threshold else None


def _similar_units(
    database: sqlite3.Connection, memory: int, language: str, threshold: int, text: str
) -> list[tuple[int, sqlite3.Row]]:
    """Return the units that are most alike by their words, the best first."""
    words = word_ids(text)
    units = []
    for row in _candidates(database, memory, language, threshold, words):
        score = percent(words, array("I", row["words"]), threshold)
        if score >= threshold:
            units.append((score, row))
    return sorted(units, key=lambda unit: (-unit[0], -unit[1]["number"]))[:_MAX_ADAPTED]


def _candidates(
    database: sqlite3.Connection, memory: int, language: str, threshold: int, words: "array[int]"
) -> Iterable[sqlite3.Row]:
    """Yield the units that share one of the rarest words, those that share most first."""
    lengths = (-(-threshold * len(words) // 100), 100 * len(words) // threshold)
    counted = {word: _num_units(database, memory, word, lengths) for word in {*words}}
    ordered = sorted(words, key=lambda word: (counted[word], word))
    rarest = {*ordered[: most_unmatched(len(words), threshold) + 1]}
    places = ", ".join("?" * len(rarest))
    query = f"""
        SELECT number, source, source_xml, words, target, target_xml FROM (
            SELECT unit, count(*) AS num_shared FROM words
            WHERE memory = ? AND word IN ({places}) AND num_words BETWEEN ? AND ?
            GROUP BY unit ORDER BY num_shared DESC, unit DESC LIMIT ?
        ) AS shared JOIN units ON number = shared.unit
        JOIN targets ON targets.unit = number AND language = ?
    """
    values = (memory, *rarest, *lengths, _MAX_CANDIDATES, language)
    return database.execute(query, values).fetchall()


def _num_units(
    database: sqlite3.Connection, memory: int, word: int, lengths: tuple[int, int]
) -> int:
    query = """
        SELECT count(*) FROM (
            SELECT 1 FROM words WHERE memory = ? AND word = ? AND num_words BETWEEN ? AND ? LIMIT ?
        )
    """
    return int(database.execute(query, (memory, word, *lengths, _MAX_COUNTED)).fetchone()[0])


def _adapt_numbers(row: sqlite3.Row, score: int, text: str) -> MemoryMatch:
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


def _match(row: sqlite3.Row, score: int, target: str) -> MemoryMatch:
    parts = (row["source_xml"], row["target_xml"])
    if None in parts:
        return MemoryMatch(score, row["source"], target)
    return MemoryMatch(score, row["source"], target, *map(parse_inline_codes, parts))
