"""Answer texts, or segments of them, from a translation memory instead of the model.

A unit of the memory is compared with the words of a segment, without tags. If it is alike enough,
its translation is taken as it is, with the segment's tags in it: where the unit has the same tags
they stand as in the unit's translation. Otherwise the model reads the given translation, and its
attention places them.
"""

import html
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.pipelines.translation.job import (
    MemoryUse,
    Rendering,
    SegmentOrigin,
    Translation,
    TranslationDelta,
    TranslationJob,
)
from serving.pipelines.translation.requests import Segment, TranslationPlan
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.requests.request import FinishReason
from serving.text.markup.segmenter import (
    reference_table,
    tokenize_text,
)
from serving.text.markup.segments import MarkedSegment
from serving.text.markup.tokens import Markup, Role, Token

_TAG = re.compile(r"<[^<>]*>")
_EXACT = 100


@dataclass(frozen=True, slots=True)
class InlineCode:
    """A tag in a segment of a translation memory.

    kind: of the token that stands for it in a text. key: what it has in common with its counterpart
        in the other language, and a closing tag with its opening one.
    """

    kind: Role
    key: str


SegmentPart = str | InlineCode


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """A unit that is like a segment.

    score: in percent; 100 if the texts are equal.
    target: the translation of its source.
    source_parts, target_parts: both with their tags; empty if they have none.
    """

    score: int
    source: str
    target: str
    source_parts: tuple[SegmentPart, ...] = ()
    target_parts: tuple[SegmentPart, ...] = ()


class Memories(Protocol):
    """The translation memories of a server."""

    async def matches(
        self, use: MemoryUse, source: str, texts: Sequence[str]
    ) -> list[MemoryMatch | None]:
        """Return the best match of each text, of at least the threshold; None without one.

        source: the language of the texts.
        """


class MemoryLookup:
    """Finds what the memory of a job knows.

    memories: None where there can be none.
    """

    def __init__(
        self, memories: Memories | None, manifest: Manifest, tokenizers: TokenizerPair
    ) -> None:
        self._memories = memories
        self._tokenizers = tokenizers
        self._has_attention = manifest.num_attention_heads > 0
        self._limits, self._eos = manifest.limits, manifest.tokens.eos

    async def known_texts(self, job: TranslationJob) -> "KnownTexts | None":
        """Return the texts of a job that are units of its memory; None if there are none.

        Raises RequestError if more is asked for than a memory can tell.
        """
        if job.memory is None:
            return None
        for field in _for_models(job):
            raise RequestError(field, True, "cannot be combined with a translation memory")
        tokens = [[*tokenize_text(text, job.markup, job.protection)] for text in job.texts]
        keys = [memory_text(each, job.markup) for each in tokens]
        use = replace(job.memory, threshold=_EXACT)
        matches = await self._matches(use, job.source, keys)
        known: dict[int, Rendering] = {}
        for number, (own, match) in enumerate(zip(tokens, matches, strict=True)):
            if match is None:
                continue
            table = reference_table(own, job.markup.kind) if job.markup else {}
            text = written(match, own if job.markup else (), table)
            if text is not None:
                known[number] = _given(job.texts[number], text, match.score, keys[number])
        return KnownTexts(job, known) if known else None

    async def applied(self, job: TranslationJob, plan: TranslationPlan) -> TranslationPlan:
        """Return the plan with the translations that the memory has for its segments."""
        if job.memory is None or not plan.segments:
            return plan
        keys = [
            segment.text if segment.marks is None else memory_text(segment.marks.tokens, job.markup)
            for segment in plan.segments
        ]
        matches = await self._matches(job.memory, job.source, keys)
        changes = {
            number: change
            for number, match in enumerate(matches)
            if match and (change := self._change(plan, plan.segments[number], match, job.markup))
        }
        return plan.with_changes(changes)

    async def _matches(
        self, use: MemoryUse, source: str, texts: Sequence[str]
    ) -> list[MemoryMatch | None]:
        if self._memories is None:
            raise RequestError("translation_memory_id", use.id, "is not available here")
        return await self._memories.matches(use, source, texts)

    def _change(
        self, plan: TranslationPlan, segment: Segment, match: MemoryMatch, markup: Markup | None
    ) -> dict[str, Any]:
        """Return the fields of a segment that its match changes; none if it cannot be used."""
        marks = segment.marks
        tokens = marks.tokens if marks and markup else ()
        text = written(match, tokens, marks.references if marks else {})
        if text is not None:
            return {"given": text, "memory_score": match.score, "prefixes": (), "terms": ()}
        if marks is None or not self._has_attention:
            return {}
        return self._read_by_model(plan, replace(marks, tokens=_as_words(marks, markup)), match)

    def _read_by_model(
        self, plan: TranslationPlan, marks: MarkedSegment, match: MemoryMatch
    ) -> dict[str, Any]:
        """Return the fields of a segment whose translation the model only reads."""
        target = self._tokenizers.target
        ids = target.encode(match.target)
        [source_ids] = self._tokenizers.encode_sources([marks.text], plan.frame)
        most_source = self._limits.max_source_tokens
        fits = len(ids) + plan.frame.num_given < self._limits.max_target_tokens and (
            most_source is None or len(source_ids) <= most_source
        )
        if not fits or target.decode(ids).strip() != match.target:
            return {}
        return {
            "text": marks.text,
            "source_ids": source_ids,
            "marks": marks,
            "prefixes": ((*ids, self._eos),),
            "memory_score": match.score,
            "terms": (),
        }


def _for_models(job: TranslationJob) -> list[str]:
    """Return the names of the fields that ask how a model translates."""
    asked = {
        "return_attention": bool(job.attention_queries),
        "return_scores": job.returns_scores,
        "target_prefix": bool(job.target_prefix),
        "alternatives_at_prefix": job.alternatives_at_prefix,
    }
    return job.uses_of_attention + [field for field, is_asked in asked.items() if is_asked]


def memory_text(tokens: Sequence[Token], markup: Markup | None) -> str:
    """Return the text of tokens without tags, as a memory has it."""
    return "".join(_text_of(token, markup) for token in tokens)


def _text_of(token: Token, markup: Markup | None) -> str:
    if markup is None:
        return token.raw  # also marks such as Markdown's: a memory has them as text
    if token.role in (Role.TEXT, Role.NUMBER, Role.NON_TRANSLATABLE):
        return html.unescape(_TAG.sub("", token.raw))
    return " " if token.role in (Role.LINE_BREAK, Role.BREAK) else ""


def _as_words(marks: MarkedSegment, markup: Markup | None) -> tuple[Token, ...]:
    """Return the tokens with all that is kept as words: the translation has its own."""
    return tuple(
        Token(Role.TEXT, token.raw, _text_of(token, markup))
        if token.text and token.role in (Role.TEXT, Role.NUMBER, Role.NON_TRANSLATABLE)
        else token
        for token in marks.tokens
    )


def written(
    match: MemoryMatch, tokens: Sequence[Token], table: Mapping[int, str | None]
) -> str | None:
    """Return a match's translation with the tags of a text; None if it does not say where they
    are.

    table: how characters are written that markup has another use for.
    """
    tags = [token for token in tokens if _is_tag(token)]
    if not tags:
        return match.target.translate(table)
    codes = [part for part in match.source_parts if isinstance(part, InlineCode)]
    if [tag.role for tag in tags] != [code.kind for code in codes]:
        return None
    if match.score == _EXACT and _texts_between(tokens) != _texts_between(match.source_parts):
        return None
    waiting: dict[InlineCode, deque[Token]] = defaultdict(deque)
    for code, tag in zip(codes, tags, strict=True):
        waiting[code].append(tag)
    return _with_tags(match.target_parts, waiting, table)


def _is_tag(token: Token) -> bool:
    if token.role is Role.LINE_BREAK or token.role is Role.BREAK:
        return bool(token.raw.strip())
    return token.role in (Role.OPEN, Role.CLOSE, Role.POINT)


def _texts_between(parts: Sequence[SegmentPart | Token]) -> list[int]:
    """Return how many letters and digits are before each tag."""
    counts, num_characters = [], 0
    for part in parts:
        if isinstance(part, InlineCode) or (isinstance(part, Token) and _is_tag(part)):
            counts.append(num_characters)
        else:
            text = part if isinstance(part, str) else html.unescape(_TAG.sub("", part.raw))
            num_characters += sum(map(str.isalnum, text))
    return counts


def _with_tags(
    parts: Sequence[SegmentPart], waiting: Mapping[InlineCode, deque[Token]], table: Any
) -> str | None:
    """Return a translation with each tag once, and nested; None if it does not have them so."""
    text, is_open = "", []
    for part in parts:
        if isinstance(part, str):
            text += part.translate(table)
            continue
        if not waiting.get(part):
            return None
        if part.kind is Role.OPEN:
            is_open.append(part.key)
        elif part.kind is Role.CLOSE and (not is_open or is_open.pop() != part.key):
            return None
        text += waiting[part].popleft().raw
    return None if is_open or any(waiting.values()) else text


def _given(text: str, translation: str, score: int, key: str) -> Rendering:
    """Return the rendering of a text that is a unit, with the spaces around it."""
    before = text[: len(text) - len(text.lstrip())]
    after = text[len(text.rstrip()) :] if text.strip() else ""
    origin = SegmentOrigin(key.strip(), translation.strip(), score)
    return Rendering(before + translation.strip() + after, origins=(origin,))


@dataclass(frozen=True, slots=True)
class KnownTexts:
    """The texts of a job that are answered from the memory, by their numbers."""

    job: TranslationJob
    known: Mapping[int, Rendering]

    @property
    def rest(self) -> TranslationJob:
        """Return the job of the other texts."""
        return replace(self.job, texts=tuple(self.job.texts[number] for number in self._left))

    @property
    def _left(self) -> list[int]:
        return [number for number in range(len(self.job.texts)) if number not in self.known]

    def deltas(self) -> Iterator[TranslationDelta]:
        for number, rendering in self.known.items():
            yield TranslationDelta(number, 0, rendering.text, FinishReason.STOP)

    def numbered(self, delta: TranslationDelta) -> TranslationDelta:
        """Return a delta of the rest with the number of its text in the whole job."""
        return replace(delta, text=self._left[delta.text])

    def put_together(self, rest: Translation) -> Translation:
        translated = iter(rest.renderings)
        ordered = tuple(
            (self.known[number],) if number in self.known else next(translated)
            for number in range(len(self.job.texts))
        )
        return replace(rest, renderings=ordered)
