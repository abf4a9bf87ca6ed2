"""Drafts what may come next from what came before: prompt lookup (Saxena, Prompt Lookup Decoding,
2023). Summaries, edits and loops repeat their prompt or themselves.
"""

from collections.abc import Iterable

LENGTHS = (3, 2)  # of what must have come before, the first that has


class Lookup:
    """Knows what one row has read and said, and where its last tokens came before."""

    def __init__(self, token_ids: Iterable[int]) -> None:
        self._tokens: list[int] = []
        self._following: dict[tuple[int, ...], int] = {}
        for token_id in token_ids:
            self.add(token_id)

    def add(self, token_id: int) -> None:
        tokens, place = self._tokens, len(self._tokens)
        for length in LENGTHS:
            if place >= length:
                self._following[tuple(tokens[-length:])] = place
        tokens.append(token_id)

    def draft(self, count: int) -> list[int]:
        """Return so many tokens, those that followed the last time that the row's last ones came
        before; none if they never did. Where that was less than `count` tokens ago they are taken
        to go round.
        """
        tokens = self._tokens
        for length in LENGTHS:
            place = self._following.get(tuple(tokens[-length:]))
            if place is not None:
                return (tokens[place : place + count] * count)[:count]
        return []
