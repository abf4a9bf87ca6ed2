"""What the protocols ask of a translation model, and its answers, in text.

Plain values: they cross to another process when another worker group serves the model.
"""

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from serving.pipelines.attention_maps import AttentionMap
from serving.pipelines.decoding import PLAIN, Decoding
from serving.pipelines.jobs import Job, StreamedJob
from serving.request import AttentionQuery, FinishReason
from serving.text.alignment import PLACEHOLDER, Link, pharaoh, placeholder_pattern
from serving.text.markup.tokens import Markup
from serving.text.sentences import Splitting


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """Gives a source term the ways in which it may be translated."""

    term: str
    translations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TranslationJob(StreamedJob["Translation", "TranslationDelta | Translation"]):
    """Asks for the translations of some texts.

    source: a language by any of its codes; as the model has it once the pipeline has checked it.
    target: likewise.
    num_alternatives: further translations of each text.
    target_prefix: what the translation of each text begins with; without a space at its end, its
        last word may go on.
    alternatives_at_prefix: alternatives differ in the token that follows the prefix.
    glossary: terms that, where they occur, must be translated so.
    placeholders: texts that go from source to target as they are, found there by the attention;
        without any, all that look like placeholders; None leaves them to the model.
    replaces_unknown: the model's unknown token gives way to the source word it attends to.
    tells_attention: the attention of each sentence is wanted.
    attention_queries: attention weights that are wanted of the best translation of each sentence.
    tells_scores: the scores of translations that were not searched are wanted; else they are 0.
    attention_heads: those whose attention counts; without any, those the bundle recommends.
    markup: what the tags in the texts are; None if there are none. XML texts are fragments.
    protection: web and e-mail addresses, code, placeholders, numbers and the like reach the
        translation as they are.
    splitting: where texts are cut.
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
    wants_alignments: bool = False
    tells_attention: bool = False
    tells_scores: bool = False
    attention_heads: tuple[int, ...] = ()
    attention_queries: tuple[AttentionQuery, ...] = ()
    markup: Markup | None = None
    protection: bool = False
    splitting: Splitting = Splitting.SENTENCES

    @property
    def has_marks(self) -> bool:
        """Return whether more may stand in its texts than what is translated, line by line."""
        is_plain = self.markup is None and not self.protection
        return not is_plain or self.splitting is not Splitting.SENTENCES

    @property
    def placeholder_pattern(self) -> re.Pattern[str] | None:
        """Match its placeholders; None where they are left to the model."""
        if self.placeholders is None:
            return None
        return placeholder_pattern(self.placeholders) if self.placeholders else PLACEHOLDER

    @property
    def wants_attention(self) -> bool:
        return bool(self.uses_of_attention)

    @property
    def uses_of_attention(self) -> list[str]:
        """Name the fields that were asked for and need the model's attention, as clients do."""
        asked = {
            "alignments": self.wants_alignments,
            "return_attention": self.tells_attention,
            "placeholders": self.placeholders is not None,
            "replace_unknown": self.replaces_unknown,
        }
        return [field for field, is_asked in asked.items() if is_asked]


@dataclass(frozen=True, slots=True)
class AlignedWords:
    """Links the words of a source with the words of its translation.

    links: indices, from 0, of a source word and of the target word that comes of it.
    """

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    links: tuple[Link, ...]

    @property
    def pharaoh(self) -> str:
        return pharaoh(self.links)


@dataclass(frozen=True, slots=True)
class SentenceAttention:
    """Describes what the tokens, and what the words, of a translated sentence attend to.

    source_tokens: the last one ends the source; special tokens have no text.
    weights: [target tokens, source tokens], rows sum to 1.
    source_words: punctuation is apart; the last one, without text, stands for all that is no word,
        as the sentence's end.
    word_weights: [target words, source words]: the sum over a source word's tokens, the mean over
        a target word's; rows sum to 1.
    """

    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    word_weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Rendering:
    """One translation of one text, or of one segment of it.

    score: mean over its sentences of what each was ranked by: the log-probability over the number
        of tokens to the power of the length penalty.
    reason: why it ended; of several sentences the gravest.
    alignment: None unless it was asked for.
    attention: of each sentence, if it was asked for.
    attention_maps: of each sentence one map for each query; with the best translation only.
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
    tells_attention: as in a `TranslationJob`.
    attention_heads, attention_queries: likewise.
    """

    request_id: str
    pairs: tuple[tuple[str, str], ...]
    source: str
    target: str
    decoding: Decoding = PLAIN
    tells_attention: bool = False
    attention_heads: tuple[int, ...] = ()
    attention_queries: tuple[AttentionQuery, ...] = ()

    @property
    def uses_of_attention(self) -> list[str]:
        return ["return_attention"] if self.tells_attention else []


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
