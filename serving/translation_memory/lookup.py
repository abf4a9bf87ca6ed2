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
    with_numbers_of,
    word_ids,
)
from serving.translation_memory.tmx import inline_codes, normalised

MIN_THRESHOLD = 50  # segments that are less alike have little in common but frequent words
_MAX_CANDIDATES = 300
_MAX_COUNTED = 2_000  # a word with more units than this is frequent, however many they are


def best_match(
    database: sqlite3.Connection, memory: int, language: str, threshold: int, text: str
) -> MemoryMatch | None:
    """Return the match with the highest score, of several the one that was added last."""
    text = normalised(text)
    query = f"{_UNIT_WITH_TARGET} AND memory = ? AND source = ?"
    row = database.execute(query, (language, memory, text)).fetchone()
    if row is not None:
        return _match(row, EXACT, row["target"])
    threshold = max(threshold, MIN_THRESHOLD)
    alike = _alike(database, memory, language, threshold, text) if threshold < EXACT else ()
    ranked = (_adapted(row, score, text) for score, row in alike)
    best = max(ranked, key=lambda match: match.score, default=None)
    return best if best is not None and best.score >= threshold else None


_UNIT_WITH_TARGET = """
SELECT * FROM units JOIN targets ON unit = number AND language = ? WHERE TRUE
"""
_MOST_ADAPTED = 5


def _alike(
    database: sqlite3.Connection, memory: int, language: str, threshold: int, text: str
) -> list[tuple[int, sqlite3.Row]]:
    """Return the units that are most alike by their words, the best first."""
    wanted = word_ids(text)
    found = []
    for row in _candidates(database, memory, language, threshold, wanted):
        score = percent(wanted, array("I", row["words"]), threshold)
        if score >= threshold:
            found.append((score, row))
    return sorted(found, key=lambda each: (-each[0], -each[1]["number"]))[:_MOST_ADAPTED]


def _candidates(
    database: sqlite3.Connection, memory: int, language: str, threshold: int, wanted: "array[int]"
) -> Iterable[sqlite3.Row]:
    """Yield the units that share one of the rarest words, those that share most first."""
    lengths = (-(-threshold * len(wanted) // 100), 100 * len(wanted) // threshold)
    counted = {word: _num_units(database, memory, word, lengths) for word in {*wanted}}
    ordered = sorted(wanted, key=lambda word: (counted[word], word))
    rarest = {*ordered[: most_unmatched(len(wanted), threshold) + 1]}
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


def _adapted(row: sqlite3.Row, score: int, text: str) -> MemoryMatch:
    """Return a match with the numbers of a text, or with a lower score if it has others."""
    num_different = num_different_numbers(text, row["source"])
    if not num_different:
        return _match(row, score, row["target"])
    target = None
    if row["target_xml"] is None:
        target = with_numbers_of(text, row["source"], row["target"])
    if target is not None:
        return _match(row, score, target)
    num_words = max(len(row["words"]) // array("I").itemsize, 1)
    return _match(row, max(score - 100 * num_different // num_words, 0), row["target"])


def _match(row: sqlite3.Row, score: int, target: str) -> MemoryMatch:
    parts = (row["source_xml"], row["target_xml"])
    if None in parts:
        return MemoryMatch(score, row["source"], target)
    return MemoryMatch(score, row["source"], target, *map(inline_codes, parts))
