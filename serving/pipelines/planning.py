"""What is to be translated, segment by segment, before the engine is asked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from serving.bundle.manifest import Manifest
from serving.errors import TooLarge
from serving.parameters import Term, TokenIds
from serving.pipelines.glossary import Glossary
from serving.pipelines.jobs import TranslationJob
from serving.text.borders import WordBorders
from serving.text.splitting import Layout, split_text
from serving.text.tokenizer import Tokenizer

# A translation may need this many times the tokens of its source, and must still fit the target.
_MOST_GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class Segment:
    """prefixes: what its translations begin with; each is a request of its own."""

    source_ids: TokenIds
    required: tuple[Term, ...] = ()
    prefixes: tuple[TokenIds, ...] = ((),)


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

    def with_prefixes(self, prefixes: dict[int, tuple[TokenIds, ...]]) -> "Plan":
        """The plan with other prefixes of some segments, by their numbers."""
        segments = list(self.segments)
        for number, own in prefixes.items():
            segments[number] = replace(segments[number], prefixes=own)
        return replace(self, segments=tuple(segments))

    def asked(self) -> Iterator[tuple[Segment, TokenIds]]:
        """What becomes a request each: a segment with one of its prefixes."""
        return ((segment, prefix) for segment in self.segments for prefix in segment.prefixes)


class Planner:
    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, max_segments: int) -> None:
        self._tokens = manifest.tokens
        self._tokenizer = tokenizer
        self._borders = WordBorders(tokenizer)
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
        prefix = tuple(self._tokenizer.encode(job.target_prefix.strip()))
        return plan.with_prefixes(dict.fromkeys(plan.first_segments, (prefix,)))

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


def _max_segment_tokens(manifest: Manifest) -> int:
    limits, tokens = manifest.limits, manifest.tokens
    longest = int(limits.max_target_tokens / _MOST_GROWTH)
    if limits.max_source_tokens is not None:
        added = len(tokens.source_prefix) + len(tokens.source_suffix)
        longest = min(longest, limits.max_source_tokens - added)
    return max(1, longest)
