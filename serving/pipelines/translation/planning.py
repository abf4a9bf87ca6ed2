"""What is to be translated, segment by segment, before the engine is asked."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from serving.bundle.manifest import Limits, Tokens
from serving.constraints import Constraint
from serving.errors import RequestError, TooLarge
from serving.parameters import Term, TokenIds
from serving.pipelines.jobs import TranslationJob
from serving.pipelines.translation.glossary import NOT_WRITABLE, Glossary
from serving.pipelines.translation.sides import Affixes, Sides
from serving.text.beginnings import Beginnings
from serving.text.borders import WordBorders
from serving.text.languages import primary_language
from serving.text.splitting import Layout, split_text

# A translation may need this many times the tokens of its source, and must still fit the target.
_MOST_GROWTH = 1.5
_LAST_WORD = re.compile(r"\s?\S+$")


@dataclass(frozen=True, slots=True)
class Segment:
    """prefixes: what its translations begin with; each is a request of its own. beginning: what
    comes next, where that is known in part.
    """

    source_ids: TokenIds
    required: tuple[Term, ...] = ()
    prefixes: tuple[TokenIds, ...] = ((),)
    beginning: Constraint | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """layouts: of the texts; their segments in one row."""

    layouts: tuple[Layout, ...]
    segments: tuple[Segment, ...]

    @property
    def first_segments(self) -> list[int]:
        """The number of the first segment of each text that has any."""
        numbers, number = [], 0
        for layout in self.layouts:
            if layout.segments:
                numbers.append(number)
            number += len(layout.segments)
        return numbers

    def with_changes(self, changes: dict[int, dict[str, Any]]) -> "Plan":
        """The plan with other values for some fields of some segments, by their numbers."""
        segments = list(self.segments)
        for number, own in changes.items():
            segments[number] = replace(segments[number], **own)
        return replace(self, segments=tuple(segments))

    def asked(self) -> Iterator[tuple[Segment, TokenIds]]:
        """What becomes a request each: a segment with one of its prefixes."""
        return ((segment, prefix) for segment in self.segments for prefix in segment.prefixes)


class Planner:
    def __init__(
        self, limits: Limits, tokens: Tokens, sides: Sides, max_segments: int | None = None
    ) -> None:
        """max_segments: of one job; None is no limit."""
        self._limits = limits
        self._prompt_prefix = tokens.prompt_prefix
        self._source, self._target = sides.source, sides.target
        self._is_lossless = sides.source.is_lossless
        self._borders = WordBorders(sides.target)
        self._beginnings = Beginnings(sides.target)
        self._max_segments = max_segments

    def plan(self, job: TranslationJob, affixes: Affixes) -> Plan:
        """Raises TooLarge for too many segments, RequestError for a prefix or a glossary's term
        that the target's vocabulary cannot write.
        """
        fits = partial(self._fits, self._max_segment_tokens(affixes))
        language = primary_language(job.source)
        layouts = tuple(split_text(text, language, fits) for text in job.texts)
        texts = [segment for layout in layouts for segment in layout.segments]
        self.check_number(texts, "sentences")
        glossary = Glossary(job.glossary, self._target, self._borders)
        required = map(glossary.required, texts)
        plan = Plan(layouts, tuple(map(Segment, self.sources(texts, affixes), required)))
        words, begun = _last_word_apart(job)
        if not (self._target.can_write(words) or job.replaces_unknown):
            raise RequestError("target_prefix", job.target_prefix, NOT_WRITABLE)
        changes: dict[str, Any] = {"prefixes": (tuple(self._target.encode(words)),)}
        if begun:
            changes["beginning"] = self._beginning(job.target_prefix, begun, not words)
        return plan.with_changes(dict.fromkeys(plan.first_segments, changes))

    def sources(self, texts: Sequence[str], affixes: Affixes) -> list[TokenIds]:
        """Each text as the encoder takes it."""
        return [affixes.around(ids) for ids in self._source.encode_batch(texts)]

    def check_number(self, parts: Sequence[object], name: str) -> None:
        if self._max_segments is not None and len(parts) > self._max_segments:
            message = f"at most {self._max_segments} {name} a request, this has {len(parts)}"
            raise TooLarge("text", parts[0], message)

    def _beginning(self, prefix: str, begun: str, begins_text: bool) -> Constraint:
        """Of what ends the prefix, as the vocabulary writes it; where it has the whole words only,
        of one that begins so.
        """
        if self._target.can_write(begun):
            begun = self._written(begun)
        elif not self._beginnings.has_token(begun, begins_text):
            raise RequestError("target_prefix", prefix, NOT_WRITABLE)
        return self._beginnings.constraint(begun, begins_text)

    def _written(self, begun: str) -> str:
        """Normalised, as the target's tokenizer has it."""
        if self._target.is_lossless:
            return begun
        space = " " if begun[0].isspace() else ""
        return space + self._target.decode(self._target.encode(begun.lstrip()))

    def _fits(self, max_tokens: int, segment: str) -> bool:
        """Where a token holds at least a byte of the text, short segments need no counting."""
        if self._is_lossless and len(segment.encode()) <= max_tokens:
            return True
        return len(self._source.encode(segment)) <= max_tokens

    def _max_segment_tokens(self, affixes: Affixes) -> int:
        num_given = len(self._prompt_prefix) + len(affixes.prompt)
        longest = int((self._limits.max_target_tokens - num_given) / _MOST_GROWTH)
        if self._limits.max_source_tokens is not None:
            longest = min(longest, self._limits.max_source_tokens - affixes.num_around)
        return max(1, longest)


def _last_word_apart(job: TranslationJob) -> tuple[str, str]:
    """A prefix in two: whole words, and the last one, with the space before it, if it may have been
    typed half: if no space follows, and nobody asks what could come right after it.
    """
    prefix = job.target_prefix.lstrip()
    last = _LAST_WORD.search(prefix)
    if last is None or job.alternatives_at_prefix:
        return prefix.rstrip(), ""
    return prefix[: last.start()], last.group()
