"""What is to be translated, segment by segment, before the engine is asked."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from serving.bundle.manifest import Manifest
from serving.constraints import Constraint
from serving.errors import TooLarge
from serving.parameters import Term, TokenIds
from serving.pipelines.glossary import Glossary
from serving.pipelines.jobs import TranslationJob
from serving.text.beginnings import Beginnings
from serving.text.borders import WordBorders
from serving.text.splitting import Layout, split_text
from serving.text.tokenizer import Tokenizer

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
    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, max_segments: int) -> None:
        self._tokens = manifest.tokens
        self._tokenizer = tokenizer
        self._borders = WordBorders(tokenizer)
        self._beginnings = Beginnings(tokenizer)
        self._max_segments = max_segments
        self._max_segment_tokens = _max_segment_tokens(manifest)

    def plan(self, job: TranslationJob) -> Plan:
        """Raises TooLarge for too many segments."""
        layouts = tuple(split_text(text, job.source, self._fits) for text in job.texts)
        texts = [segment for layout in layouts for segment in layout.segments]
        self.check_number(texts, "sentences")
        glossary = Glossary(job.glossary, self._tokenizer, self._borders)
        required = map(glossary.required, texts)
        plan = Plan(layouts, tuple(map(Segment, self.sources(texts), required)))
        words, begun = _last_word_apart(job)
        changes: dict[str, Any] = {"prefixes": (tuple(self._tokenizer.encode(words)),)}
        if begun:
            changes["beginning"] = self._beginnings.constraint(begun)
        return plan.with_changes(dict.fromkeys(plan.first_segments, changes))

    def sources(self, texts: Sequence[str]) -> list[TokenIds]:
        """Each text as the encoder takes it."""
        prefix, suffix = self._tokens.source_prefix, self._tokens.source_suffix
        return [(*prefix, *ids, *suffix) for ids in self._tokenizer.encode_batch(texts)]

    def check_number(self, parts: Sequence[object], name: str) -> None:
        if len(parts) > self._max_segments:
            message = f"at most {self._max_segments} {name} a request, this has {len(parts)}"
            raise TooLarge("text", parts[0], message)

    def _fits(self, segment: str) -> bool:
        """A byte-level token holds at least a byte: short segments need no counting."""
        limit = self._max_segment_tokens
        return len(segment.encode()) <= limit or len(self._tokenizer.encode(segment)) <= limit


def _last_word_apart(job: TranslationJob) -> tuple[str, str]:
    """A prefix in two: whole words, and the last one, with the space before it, if it may have been
    typed half: if no space follows, and nobody asks what could come right after it.
    """
    prefix = job.target_prefix.lstrip()
    last = _LAST_WORD.search(prefix)
    if last is None or job.alternatives_at_prefix:
        return prefix.rstrip(), ""
    return prefix[: last.start()], last.group()


def _max_segment_tokens(manifest: Manifest) -> int:
    limits, tokens = manifest.limits, manifest.tokens
    longest = int(limits.max_target_tokens / _MOST_GROWTH)
    if limits.max_source_tokens is not None:
        added = len(tokens.source_prefix) + len(tokens.source_suffix)
        longest = min(longest, limits.max_source_tokens - added)
    return max(1, longest)
