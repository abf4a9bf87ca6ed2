"""Translation jobs and their results, as text.

All are plain values, because they are sent to other processes.
"""

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from serving.pipelines.attention_maps import AttentionMap
from serving.pipelines.decoding import DEFAULT_DECODING, Decoding
from serving.pipelines.jobs import Job, StreamedJob
from serving.pipelines.translation.quality import SegmentQuality
from serving.requests.request import AttentionQuery, FinishReason
from serving.text.alignment import (
    Link,
    format_pharaoh,
)
from serving.text.markup.placeholders import PLACEHOLDER
from serving.text.markup.tokens import Markup
from serving.text.replacement import placeholder_pattern
from serving.text.sentences import Splitting


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """A source term and its allowed translations."""

    term: str
    translations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Names the translation memory that a job uses.

    owner: the name of the key that it belongs to. target: language of the translations, as the
    client wrote it. threshold: a unit is used that is at least so much like a segment, in percent.
    """

    owner: str
    id: str
    target: str
    threshold: int = 75


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
    returns_quality: whether the quality of each sentence is estimated.
    attention_heads: the heads whose attention is used; empty for those that the bundle recommends.
    markup: the kind of tags in the texts; None if there are none. XML texts are fragments.
    protection: whether web and e-mail addresses, code, placeholders, numbers and the like are
        copied.
    splitting: where texts are split.
    memory: answers the segments that it knows.
    """

    request_id: str
    texts: tuple[str, ...]
    source: str
    target: str
    decoding: Decoding = DEFAULT_DECODING
    num_alternatives: int = 0
    target_prefix: str = ""
    alternatives_at_prefix: bool = False
    glossary: tuple[GlossaryEntry, ...] = ()
    placeholders: tuple[str, ...] | None = None
    replaces_unknown: bool = False
    returns_alignments: bool = False
    returns_attention: bool = False
    returns_scores: bool = False
    returns_quality: bool = False
    attention_heads: tuple[int, ...] = ()
    attention_queries: tuple[AttentionQuery, ...] = ()
    markup: Markup | None = None
    protection: bool = False
    splitting: Splitting = Splitting.SENTENCES
    memory: MemoryUse | None = None

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
        """Return whether attention decides what the translation is, or what is said of it."""
        return (
            self.returns_alignments
            or self.returns_attention
            or self.placeholders is not None
            or self.replaces_unknown
        )

    @property
    def uses_of_attention(self) -> list[str]:
        """Return the names of its fields that need the model's attention, as clients write them."""
        uses = {
            "alignments": self.returns_alignments,
            "return_attention": self.returns_attention,
            "placeholders": self.placeholders is not None,
            "replace_unknown": self.replaces_unknown,
        }
        return [field for field, is_asked in uses.items() if is_asked]


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
        return format_pharaoh(self.links)


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
class SegmentOrigin:
    """Says where the translation of a segment came from.

    source: the segment without tags. memory_score: how much it is like the unit of the translation
    memory whose translation was taken, in percent; None if the model translated it.
    """

    source: str
    target: str
    memory_score: int | None = None


@dataclass(frozen=True, slots=True)
class Rendering:
    """One translation of a text, or of a segment of it.

    score: mean over its sentences of log-probability / number of tokens ** length penalty.
    reason: the finish reason; of several sentences the most severe.
    alignment: None unless the job asked for it.
    attention, quality: of each sentence, if the job asked for it.
    origins: of each segment, if the job has a translation memory.
    """

    text: str
    score: float = 0.0
    reason: FinishReason = FinishReason.STOP
    alignment: AlignedWords | None = None
    attention: tuple[SentenceAttention, ...] = ()
    attention_maps: tuple[tuple[AttentionMap, ...], ...] = ()
    quality: tuple[SegmentQuality, ...] = ()
    origins: tuple[SegmentOrigin, ...] = ()


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
    decoding: Decoding = DEFAULT_DECODING
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
