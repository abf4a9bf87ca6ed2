"""Translation jobs and their results, as text. An ICU message is a job of several texts.

All are plain values, because they are sent to other processes.
"""

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from serving.errors import RequestError
from serving.pipelines.attention_maps import AttentionMap
from serving.pipelines.decoding import PLAIN, Decoding
from serving.pipelines.jobs import Job, StreamedJob
from serving.request import AttentionQuery, FinishReason
from serving.text.alignment import PLACEHOLDER, Link, pharaoh, placeholder_pattern
from serving.text.markup.segments import read_tokens
from serving.text.markup.tokens import Markup, Role
from serving.text.plain_text import Argument, arguments, formatted_as
from serving.text.sentences import Splitting


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """A source term and its allowed translations."""

    term: str
    translations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TranslationJob(StreamedJob["Translation", "TranslationDelta | Translation"]):
    """A request to translate some texts.

    source, target: any code of a language; the pipeline replaces it by the model's own.
    num_alternatives: number of further translations of each text.
    target_prefix: the beginning of the translation of each text. If it does not end with a space,
        its last word may continue.
    alternatives_at_prefix: whether alternatives differ in the token after the prefix.
    glossary: terms that must be translated as given.
    placeholders: texts that are copied from source to target, placed by attention. An empty tuple
        stands for everything that looks like a placeholder; None leaves them to the model.
    replaces_unknown: whether the unknown token is replaced by the source word that it attends to.
    returns_attention: whether the attention of each sentence is returned.
    attention_queries: attention weights of the best translation of each sentence that are returned.
    returns_scores: whether translations without a beam search get scores; otherwise these are 0.
    attention_heads: the heads whose attention is used; empty for those that the bundle recommends.
    markup: the kind of tags in the texts; None if there are none. XML texts are fragments.
    protection: whether web and e-mail addresses, code, placeholders, numbers and the like are
        copied.
    splitting: where texts are split.
    """

    request_id: str
    texts: tuple[str, ...]
    source: str
    target: str
    decoding: Decoding = PLAIN
    num_alternatives: int = 0
    target_prefix: str = ""
    alternatives_at_prefix: bool = False
    glossary: tuple[GlossaryEntry, ...] = ()
    placeholders: tuple[str, ...] | None = None
    replaces_unknown: bool = False
    returns_alignments: bool = False
    returns_attention: bool = False
    returns_scores: bool = False
    attention_heads: tuple[int, ...] = ()
    attention_queries: tuple[AttentionQuery, ...] = ()
    markup: Markup | None = None
    protection: bool = False
    splitting: Splitting = Splitting.SENTENCES

    @property
    def has_marks(self) -> bool:
        """Return whether its texts may contain more than words that are translated line by line."""
        is_plain = self.markup is None and not self.protection
        return not is_plain or self.splitting is not Splitting.SENTENCES

    @property
    def placeholder_pattern(self) -> re.Pattern[str] | None:
        """Return a pattern that matches its placeholders; None if they are left to the model."""
        if self.placeholders is None:
            return None
        return placeholder_pattern(self.placeholders) if self.placeholders else PLACEHOLDER

    @property
    def needs_attention(self) -> bool:
        return bool(self.uses_of_attention)

    @property
    def uses_of_attention(self) -> list[str]:
        """Return the names of its fields that need the model's attention, as clients write them."""
        asked = {
            "alignments": self.returns_alignments,
            "return_attention": self.returns_attention,
            "placeholders": self.placeholders is not None,
            "replace_unknown": self.replaces_unknown,
        }
        return [field for field, is_asked in asked.items() if is_asked]


@dataclass(frozen=True, slots=True)
class AlignedWords:
    """Links between the words of a source and of its translation.

    links: indices, from 0, of a source word and of the target word aligned with it.
    """

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    links: tuple[Link, ...]

    @property
    def pharaoh(self) -> str:
        return pharaoh(self.links)


@dataclass(frozen=True, slots=True)
class SentenceAttention:
    """The attention of a translated sentence, by tokens and by words.

    source_tokens: the last one ends the source; special tokens have no text.
    weights: [target tokens, source tokens], rows sum to 1.
    source_words: punctuation marks are words; the last entry, without text, stands for everything
        else, such as the end of the sentence.
    word_weights: [target words, source words]: the sum over a source word's tokens, the mean over a
        target word's; rows sum to 1.
    """

    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    word_weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Rendering:
    """One translation of a text, or of a segment of it.

    score: mean over its sentences of log-probability / number of tokens ** length penalty.
    reason: the finish reason; of several sentences the most severe.
    alignment: None unless the job asked for it.
    attention: of each sentence, if the job asked for it.
    """

    text: str
    score: float = 0.0
    reason: FinishReason = FinishReason.STOP
    alignment: AlignedWords | None = None
    attention: tuple[SentenceAttention, ...] = ()
    attention_maps: tuple[tuple[AttentionMap, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Translation:
    """Answers a `TranslationJob`.

    renderings: of each text, best first.
    """

    renderings: tuple[tuple[Rendering, ...], ...]
    num_source_tokens: int
    num_generated_tokens: int

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(best.text for best, *_ in self.renderings)


@dataclass(frozen=True, slots=True)
class ScoreJob(Job["tuple[PairScore, ...]"]):
    """Asks how likely each of these translations is.

    pairs: a source text and its translation each.
    returns_attention: as in a `TranslationJob`.
    attention_heads, attention_queries: likewise.
    """

    request_id: str
    pairs: tuple[tuple[str, str], ...]
    source: str
    target: str
    decoding: Decoding = PLAIN
    returns_attention: bool = False
    attention_heads: tuple[int, ...] = ()
    attention_queries: tuple[AttentionQuery, ...] = ()

    @property
    def uses_of_attention(self) -> list[str]:
        return ["return_attention"] if self.returns_attention else []


@dataclass(frozen=True, slots=True)
class PairScore:
    """Answers a `ScoreJob` for one pair.

    tokens: of the translation, with their log-probabilities; the last one, without text, ends it.
    attention: None unless it was asked for.
    attention_maps: one map for each query of the job.
    """

    tokens: tuple[tuple[str, float], ...]
    attention: SentenceAttention | None = None
    attention_maps: tuple[AttentionMap, ...] = ()

    @property
    def logprob(self) -> float:
        return sum(logprob for _, logprob in self.tokens)


@dataclass(frozen=True, slots=True)
class TranslationDelta:
    """The next piece of the translation of one text; all of a text joined are the whole.

    text: number of the text in its job. sentence: number of the sentence in its text, both from 0.
    piece: with it goes what stands before a sentence, and with a text's last piece what is after.
    reason: why the sentence ended, with its last piece.
    """

    text: int
    sentence: int
    piece: str
    reason: FinishReason | None = None


# Deltas as they come, and at the end the whole translation, as `translate` would have it.
TranslationStream = AsyncGenerator[TranslationDelta | Translation, None]


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument of a message, whose branches are translated as texts of their own.

    placeholder: what stands for the argument in its message.
    pieces: the text before, between and after the branches.
    """

    placeholder: str
    pieces: tuple[str, ...]
    branches: tuple["_Message", ...]

    def filled(self, translations: Iterator[str]) -> str:
        """Return the argument with the next translations as its branches."""
        text = self.pieces[0]
        for branch, piece in zip(self.branches, self.pieces[1:], strict=True):
            # A branch may be a part of a sentence: it begins and ends as in the source.
            translated = formatted_as(branch.text, next(translations))
            text += branch.filled(translated, translations) + piece
        return text


@dataclass(frozen=True, slots=True)
class _Message:
    """A text to translate.

    text: with a placeholder for each argument, and a number for each "#" that stands for one.
    numbers: those that stand for "#", in order.
    """

    text: str
    numbers: tuple[str, ...]
    arguments: tuple[_Argument, ...]

    def branch_texts(self) -> Iterator[str]:
        """Yield the texts of all branches, those within a branch right after it."""
        for argument in self.arguments:
            for branch in argument.branches:
                yield branch.text
                yield from branch.branch_texts()

    def filled(self, translated: str, translations: Iterator[str]) -> str:
        """Return the text's translation with its "#" and arguments put back.

        translations: of `branch_texts`, in the same order.
        """
        for number in self.numbers:
            translated = re.sub(rf"(?<!\d){number}(?!\d)", "#", translated, count=1)
        for argument in self.arguments:
            filled = argument.filled(translations)
            translated = translated.replace(argument.placeholder, filled, 1)
        return translated


class MessageJob:
    """A job with ICU messages in its texts.

    job: the job to run instead: the texts with placeholders, then the texts of all branches.
    """

    def __init__(self, job: TranslationJob, messages: Sequence[_Message]) -> None:
        self._messages = messages
        outer = [message.text for message in messages]
        inner = [text for message in messages for text in message.branch_texts()]
        self.job = replace(job, texts=(*outer, *inner))

    @classmethod
    def of(cls, job: TranslationJob) -> "MessageJob | None":
        """Return None if no text has a message to translate by its branches; also without
        protection, and where more than texts is asked for.
        """
        asks_for_more = (
            job.needs_attention
            or job.attention_queries
            or job.target_prefix
            or job.alternatives_at_prefix
        )
        may_have = any("{" in text and "," in text for text in job.texts)
        if not (job.protection and may_have) or asks_for_more:
            return None
        messages = [_message(text, job) for text in job.texts]
        return cls(job, messages) if any(each.arguments for each in messages) else None

    def put_together(self, translation: Translation) -> Translation:
        """Return the translation of the texts; all alternatives have the same branches."""
        outer = translation.renderings[: len(self._messages)]
        inner = (best.text for best, *_ in translation.renderings[len(self._messages) :])
        renderings = []
        for message, ranked in zip(self._messages, outer, strict=True):
            branches = [next(inner) for _ in message.branch_texts()]
            renderings.append(
                tuple(
                    replace(each, text=message.filled(each.text, iter(branches))) for each in ranked
                )
            )
        return replace(translation, renderings=tuple(renderings))


def _message(text: str, job: TranslationJob, selector: str | None = None) -> _Message:
    """Replace the arguments of a text by placeholders.

    selector: of a branch in which "#" stands for a number.
    """
    names = (f"{{message{number}}}" for number in count())
    placeholders = (name for name in names if name not in text)
    outer, start, found = "", 0, []
    for argument in arguments(text):
        if _is_translated(text, argument, job):
            found.append(_argument(text, argument, next(placeholders), job))
            outer += text[start : argument.span.start] + found[-1].placeholder
            start = argument.span.end
    return _Message(*_with_numbers(outer + text[start:], selector), tuple(found))


def _argument(text: str, argument: Argument, placeholder: str, job: TranslationJob) -> _Argument:
    branches = [
        _message(text[slice(*span)], job, selector if argument.has_number else None)
        for span, selector in zip(argument.branches, argument.selectors, strict=True)
    ]
    starts = (argument.span.start, *(branch.end for branch in argument.branches))
    ends = (*(branch.start for branch in argument.branches), argument.span.end)
    pieces = (text[start:end] for start, end in zip(starts, ends, strict=True))
    return _Argument(placeholder, tuple(pieces), tuple(branches))


def _with_numbers(text: str, selector: str | None) -> tuple[str, tuple[str, ...]]:
    """Return a branch with a number for each "#", and these numbers. The numbers are of the kind
    that the selector chooses: a model translates "3 dogs" well, and numbers are protected.
    """
    if selector is None:
        return text, ()
    named = {"zero": 0, "one": 1, "two": 2}.get(selector, 3)
    first = int(selector[1:]) if selector.startswith("=") else named
    unused = (str(number) for number in count(first) if str(number) not in text)
    # "#" in quotes or in a placeholder stands for no number.
    parts = re.split(r"('[{}#|][^']*'|\{[^{}]*\}|#)", text)
    numbers = tuple(next(unused) for part in parts if part == "#")
    waiting = iter(numbers)
    return "".join(next(waiting) if part == "#" else part for part in parts), numbers


def _is_translated(text: str, argument: Argument, job: TranslationJob) -> bool:
    """Return whether the argument is in text that is translated, and each branch is valid alone."""
    if job.markup is None:
        return True
    name = "{message}"
    whole = text[: argument.span.start] + name + text[argument.span.end :]
    try:
        for branch in argument.branches:
            [*read_tokens(text[slice(*branch)], job.markup, is_protected=True)]
        tokens = [*read_tokens(whole, job.markup, is_protected=True)]
    except RequestError:
        return False
    return any(token.role is Role.TEXT and name in token.text for token in tokens)
