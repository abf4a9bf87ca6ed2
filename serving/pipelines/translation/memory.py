"""Answer texts, or segments of them, from a translation memory instead of the model.

A unit of the memory is compared with the words of a segment, without tags. If it is alike enough,
its translation is taken as it is, with the segment's tags in it: where the unit has the same tags
they stand as in the unit's translation. Otherwise the model reads the translation, and its
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
from serving.pipelines.translation.plan import Segment, TranslationPlan
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
    """Looks up the texts and segments of jobs in their translation memories.

    memories: None where there can be none.
    """

    def __init__(
        self, memories: Memories | None, manifest: Manifest, tokenizers: TokenizerPair
    ) -> None:
        self._memories = memories
        self._tokenizers = tokenizers
        self._has_attention = manifest.num_attention_heads > 0
        self._limits, self._eos = manifest.limits, manifest.tokens.eos

    async def find_texts(self, job: TranslationJob, use: MemoryUse) -> "PretranslatedTexts":
        """Return the texts of a job that are units of its memory as a whole.

        Raises RequestError if more is asked for than a memory can tell.
        """
        for field in _fields_for_models(job):
            raise RequestError(field, True, "cannot be combined with a translation memory")
        tokens = [[*tokenize_text(text, job.markup, job.protection)] for text in job.texts]
        keys = [memory_text(tokens_of_text, job.markup) for tokens_of_text in tokens]
        matches = await self._matches(replace(use, threshold=_EXACT), job.source, keys)
        renderings: dict[int, Rendering] = {}
        for number, (tokens_of_text, match) in enumerate(zip(tokens, matches, strict=True)):
            if match is None:
                continue
            table = reference_table(tokens_of_text, job.markup.kind) if job.markup else {}
            text = write_match(match, tokens_of_text if job.markup else (), table)
            if text is not None:
                renderings[number] = _render_unit(job.texts[number], text, match, keys[number])
        return PretranslatedTexts(job, renderings)

    async def pretranslate(
        self, job: TranslationJob, plan: TranslationPlan, use: MemoryUse
    ) -> TranslationPlan:
        """Return the plan with the translations that the memory has for its segments."""
        if not plan.segments:
            return plan
        keys = [
            segment.text if segment.marks is None else memory_text(segment.marks.tokens, job.markup)
            for segment in plan.segments
        ]
        matches = await self._matches(use, job.source, keys)
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
        text = write_match(match, tokens, marks.references if marks else {})
        if text is not None:
            return {
                "fixed_translation": text,
                "memory_score": match.score,
                "prefixes": (),
                "terms": (),
            }
        if marks is None or not self._has_attention:
            return {}
        return self._fields_to_read(plan, replace(marks, tokens=_as_words(marks, markup)), match)

    def _fields_to_read(
        self, plan: TranslationPlan, marks: MarkedSegment, match: MemoryMatch
    ) -> dict[str, Any]:
        """Return the fields of a segment whose translation the model only reads."""
        target = self._tokenizers.target
        ids = target.encode(match.target)
        [source_ids] = self._tokenizers.encode_sources([marks.text], plan.special_tokens)
        limits, num_target = self._limits, len(ids) + plan.special_tokens.num_target
        fits = num_target < limits.max_target_tokens and (
            limits.max_source_tokens is None or len(source_ids) <= limits.max_source_tokens
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


def _fields_for_models(job: TranslationJob) -> list[str]:
    """Return the names of the fields that ask how a model translates."""
    fields = {
        "return_attention": bool(job.attention_queries),
        "return_scores": job.returns_scores,
        "target_prefix": bool(job.target_prefix),
        "alternatives_at_prefix": job.alternatives_at_prefix,
    }
    return job.uses_of_attention + [field for field, is_asked in fields.items() if is_asked]


def memory_text(tokens: Sequence[Token], markup: Markup | None) -> str:
    """Return the text of tokens without tags, as a memory has it."""
    return "".join(_memory_text_of_token(token, markup) for token in tokens)


def _memory_text_of_token(token: Token, markup: Markup | None) -> str:
    if markup is None:
        return token.raw  # also marks such as Markdown's: a memory has them as text
    if token.role in (Role.TEXT, Role.NUMBER, Role.NON_TRANSLATABLE):
        return html.unescape(_TAG.sub("", token.raw))
    return " " if token.role in (Role.LINE_BREAK, Role.BREAK) else ""


def _as_words(marks: MarkedSegment, markup: Markup | None) -> tuple[Token, ...]:
    """Return the tokens with all that is kept as words: the translation has its own."""
    return tuple(
        Token(Role.TEXT, token.raw, _memory_text_of_token(token, markup))
        if token.text and token.role in (Role.TEXT, Role.NUMBER, Role.NON_TRANSLATABLE)
        else token
        for token in marks.tokens
    )


def write_match(
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
    if match.score == _EXACT and _num_characters_before_tags(tokens) != _num_characters_before_tags(
        match.source_parts
    ):
        return None
    waiting: dict[InlineCode, deque[Token]] = defaultdict(deque)
    for code, tag in zip(codes, tags, strict=True):
        waiting[code].append(tag)
    return _with_tags(match.target_parts, waiting, table)


def _is_tag(token: Token) -> bool:
    if token.role is Role.LINE_BREAK or token.role is Role.BREAK:
        return bool(token.raw.strip())
    return token.role in (Role.OPEN, Role.CLOSE, Role.POINT)


def _num_characters_before_tags(parts: Sequence[SegmentPart | Token]) -> list[int]:
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
    text, open_keys = "", []
    for part in parts:
        if isinstance(part, str):
            text += part.translate(table)
            continue
        if not waiting.get(part):
            return None
        if part.kind is Role.OPEN:
            open_keys.append(part.key)
        elif part.kind is Role.CLOSE and (not open_keys or open_keys.pop() != part.key):
            return None
        text += waiting[part].popleft().raw
    return None if open_keys or any(waiting.values()) else text


def _render_unit(text: str, translation: str, match: MemoryMatch, key: str) -> Rendering:
    """Return the rendering of a text that is a unit, with the spaces around it."""
    before = text[: len(text) - len(text.lstrip())]
    after = text[len(text.rstrip()) :] if text.strip() else ""
    origin = SegmentOrigin(key.strip(), translation.strip(), match.score)
    return Rendering(before + translation.strip() + after, origins=(origin,))


class PretranslatedTexts:
    """The texts of a job that the memory answers as a whole.

    renderings: of these texts, by their numbers.
    rest: the job of the other texts.
    """

    def __init__(self, job: TranslationJob, renderings: Mapping[int, Rendering]) -> None:
        self._renderings, self._num_texts = renderings, len(job.texts)
        self._others = [number for number in range(self._num_texts) if number not in renderings]
        self.rest = replace(job, texts=tuple(job.texts[number] for number in self._others))

    def deltas(self) -> Iterator[TranslationDelta]:
        """Yield the answered texts, each as one delta."""
        for number, rendering in self._renderings.items():
            yield TranslationDelta(number, 0, rendering.text, FinishReason.STOP)

    def renumber(self, delta: TranslationDelta) -> TranslationDelta:
        """Return a delta of the rest with the number of its text in the whole job."""
        return replace(delta, text=self._others[delta.text])

    def merge(self, rest: Translation) -> Translation:
        """Return the translation of the whole job."""
        translated = iter(rest.renderings)
        ordered = tuple(
            (self._renderings[number],) if number in self._renderings else next(translated)
            for number in range(self._num_texts)
        )
        return replace(rest, renderings=ordered)
