"""What the protocols ask of a model and what it answers, in text.

Plain values: they cross to another process when another worker group serves the model.
"""

from dataclasses import dataclass, field
from typing import Any

from serving.bundle.manifest import Manifest, Task
from serving.errors import RequestError
from serving.pipelines.decoding import PLAIN, Decoding
from serving.request import FinishReason
from serving.text.alignment import Link, pharaoh
from serving.text.chat import Chat
from serving.text.languages import UNDETERMINED, matching


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a client may know about a model that is served.

    source_languages, target_languages: codes as the model has them.
    num_attention_heads: those over the source that it tells of; 0 if it has none.
    has_chat_template: whether it can be asked by messages.
    generation: what its makers recommend where a request says nothing, by our fields' names.
    """

    name: str
    task: Task
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    max_target_tokens: int
    architecture: str
    num_attention_heads: int
    has_chat_template: bool = False
    generation: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest) -> "ModelCard":
        return cls(
            manifest.name,
            manifest.task,
            manifest.source_languages,
            manifest.target_languages,
            manifest.limits.max_target_tokens,
            manifest.architecture,
            manifest.num_attention_heads,
            manifest.chat_template is not None,
            manifest.generation,
        )

    @property
    def no_attention(self) -> str:
        """Why a model without heads cannot do what needs them."""
        return f"has no attention over its source: its architecture, {self.architecture}, has none"

    def targets_of(self, source: str) -> tuple[str, ...]:
        """What it translates a language of its own into: into itself only if nothing else."""
        others = (each for each in self.target_languages if each != source)
        if source == UNDETERMINED:
            return self.target_languages
        return tuple(others) or self.target_languages

    def translates(self, source: str, target: str) -> bool:
        try:
            self.languages(source, target)
        except RequestError:
            return False
        return True

    def languages(self, source: str, target: str) -> tuple[str, str]:
        """A client's source and target as the model has them; see `serving.text.languages`. Raises
        RequestError naming the languages to choose from.
        """
        own = self.source_language(source)
        return own, self._language("target", target, self.targets_of(own))

    def source_language(self, code: str) -> str:
        return self._language("source", code, self.source_languages)

    def _language(self, field: str, code: str, known: tuple[str, ...]) -> str:
        found = matching(code, known)
        if not found:
            raise RequestError(field, code, f"model {self.name} has {', '.join(known)}")
        if len(found) > 1:
            message = f"model {self.name} has several of that language: {', '.join(found)}"
            raise RequestError(field, code, message)
        return found[0]


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """A source term and the ways in which it may be translated."""

    term: str
    translations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TranslationJob:
    """num_alternatives: further translations of each text.
    target_prefix: what the translation of each text begins with; without a space at its end, its
        last word may go on.
    alternatives_at_prefix: alternatives differ in the token that follows the prefix.
    glossary: terms that, where they occur, must be translated so.
    placeholders: texts that go from source to target as they are, found there by the attention;
        without any, all that look like placeholders; None leaves them to the model.
    replaces_unknown: the model's unknown token gives way to the source word it attends to.
    attention_heads: those whose attention counts; without any, those the bundle recommends.
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
    attention_heads: tuple[int, ...] = ()

    @property
    def wants_attention(self) -> bool:
        return bool(self.uses_of_attention)

    @property
    def uses_of_attention(self) -> list[str]:
        """What was asked for that needs the model's attention, as clients call it."""
        asked = {
            "alignments": self.wants_alignments,
            "return_attention": self.tells_attention,
            "placeholders": self.placeholders is not None,
            "replace_unknown": self.replaces_unknown,
        }
        return [field for field, is_asked in asked.items() if is_asked]


@dataclass(frozen=True, slots=True)
class AlignedWords:
    """links: indices, from 0, of a source word and of the target word that comes of it."""

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    links: tuple[Link, ...]

    @property
    def pharaoh(self) -> str:
        return pharaoh(self.links)


@dataclass(frozen=True, slots=True)
class SentenceAttention:
    """What the tokens, and what the words, of a translated sentence attend to.

    weights: [target tokens, source tokens], rows sum to 1. The source's last token ends it; special
        tokens have no text.
    word_weights: [target words, source words]: the sum over a source word's tokens, the mean over
        a target word's; rows sum to 1. Punctuation is apart. The last source word, without text,
        is all that is no word, as the sentence's end.
    """

    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    word_weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Rendering:
    """One translation of one text.

    score: mean over its sentences of what each was ranked by: the log-probability over the number
        of tokens to the power of the length penalty.
    reason: why it ended; of several sentences the gravest.
    alignment: None unless it was asked for. attention: of each sentence, if it was asked for.
    """

    text: str
    score: float = 0.0
    reason: FinishReason = FinishReason.STOP
    alignment: AlignedWords | None = None
    attention: tuple[SentenceAttention, ...] = ()


@dataclass(frozen=True, slots=True)
class Translation:
    """renderings: of each text, best first."""

    renderings: tuple[tuple[Rendering, ...], ...]
    num_source_tokens: int
    num_generated_tokens: int

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(best.text for best, *_ in self.renderings)


@dataclass(frozen=True, slots=True)
class ScoreJob:
    """How likely is each of these translations? Pairs of a source text and its translation.

    tells_attention, attention_heads: as of a `TranslationJob`.
    """

    request_id: str
    pairs: tuple[tuple[str, str], ...]
    source: str
    target: str
    decoding: Decoding = PLAIN
    tells_attention: bool = False
    attention_heads: tuple[int, ...] = ()

    @property
    def uses_of_attention(self) -> list[str]:
        return ["return_attention"] if self.tells_attention else []


@dataclass(frozen=True, slots=True)
class PairScore:
    """tokens: of the translation, with their log-probabilities; the last one, without text, ends
    it. attention: None unless it was asked for.
    """

    tokens: tuple[tuple[str, float], ...]
    attention: SentenceAttention | None = None

    @property
    def logprob(self) -> float:
        return sum(logprob for _, logprob in self.tokens)


@dataclass(frozen=True, slots=True)
class CompletionJob:
    """Completions of each prompt; prompts are text, token ids or chats. Ids are taken as they are:
    a start token comes before a text, not before ids.

    num_samples: completions of a prompt; under beam search its `num_hypotheses` count instead.
    echo: begin with the prompt, whose tokens are reported if the completion's are.
    streams: deltas are wanted as early as they are certain.
    """

    request_id: str
    prompts: tuple[str | tuple[int, ...] | Chat, ...]
    decoding: Decoding = PLAIN
    num_samples: int = 1
    stop: tuple[str, ...] = ()
    echo: bool = False
    streams: bool = False

    @property
    def num_choices(self) -> int:
        """Of each prompt."""
        beam = self.decoding.beam
        return beam.num_hypotheses if beam else self.num_samples


Shown = bytes | int


@dataclass(frozen=True, slots=True)
class TokenText:
    """A token and its text. offset: characters of the completion before it.

    token: its bytes; its id if the model's tokenizer has none of that id.
    logprob: None of a prompt's first token if nothing comes before it.
    top: the likeliest tokens and their log-probabilities.
    """

    token: Shown
    logprob: float | None
    top: tuple[tuple[Shown, float], ...]
    offset: int

    @property
    def text(self) -> str:
        return spelt(self.token)


@dataclass(frozen=True, slots=True)
class CompletionDelta:
    """The next piece of one completion; the one with a `finish_reason` is its last.

    index: prompt by prompt, the choices of a prompt together.
    num_generated_tokens: so far.
    score: with the last piece of a hypothesis, what it was ranked by.
    """

    index: int
    text: str
    tokens: tuple[TokenText, ...] = ()
    finish_reason: FinishReason | None = None
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    score: float | None = None


def spelt(token: Shown) -> str:
    """A token's text; one that is part of a character is spelt as OpenAI spells it, one that has
    only an id as vLLM does.
    """
    if isinstance(token, int):
        return f"token_id:{token}"
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)
