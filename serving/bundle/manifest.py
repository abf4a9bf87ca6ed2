"""Describes what ``bundle.json`` says: a model is a few graphs plus a list of named state tensors.

The manifest is data only. Whether the files beside it match is the business of ``opening``.
"""

import enum
from dataclasses import dataclass, field, replace
from typing import Any

FORMAT_VERSION = 3
MANIFEST_FILE = "bundle.json"
TOKENIZER_FILE = "tokenizer.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"  # where the target has another than the source
SHORTLIST_FILE = "shortlist.safetensors"
WORDS_FILE = "words.txt"  # that a translator knows of the languages it reads
CARD_FILE = "README.md"
BATCH = "batch"  # leading axis of every tensor of a graph
SOURCE = "source"  # axis of a constant state: source positions, padded to the engine's span
LENGTH = "length"  # axis of an append state: the capacity, limits.max_target_tokens
CANDIDATES = "candidates"  # axis of rows' lexical shortlists, padded to the longest of the batch
UNION = "union"  # axis of what any row has on its shortlist
WANTS_LOGP = "wants_logp"  # switches log-probabilities off: a step graph then gives logits for them
EDITS = "edits"  # axis of the scores that the select graph changes in each row
SOURCE_TYPES = "source_types"  # input of encode: which text of a pair a token is of
EMBEDDING = "embedding"  # what encode gives for task embed
LOGITS = "logits"  # and for task classify
SELECT = "select"  # the graph that chooses next tokens on a device
MAX_TOP_K = 1024  # most that it ranks
STEP_ATTENTION = "step_attention"  # the step graph, telling also what its tokens look at
ENCODE_ATTENTION = "encode_attention"  # likewise the encode graph
ATTENDED = "attended"  # input and axis: of how many target positions attention is told
VERIFY = "verify"  # the graph that scores several next tokens of a row at once
POSITIONS = "positions"  # axis of what it scores: of each row so many tokens, row by row

Shape = tuple[int | str, ...]


class Task(enum.StrEnum):
    TRANSLATE = "translate"
    GENERATE = "generate"
    EMBED = "embed"  # a vector for each text
    CLASSIFY = "classify"  # logits for each text, or pair of texts

    @property
    def only_encodes(self) -> bool:
        """Tell whether a request ends with its encoding: there is no graph ``step``."""
        return self in (Task.EMBED, Task.CLASSIFY)


class Precision(enum.StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"


DEVICE_PRECISIONS = (Precision.BF16, Precision.FP16)


class StateKind(enum.StrEnum):
    """Says how a state changes per token."""

    APPEND = "append"  # one position is added, in place
    REPLACE = "replace"  # overwritten
    UPDATE = "update"  # overwritten in place: no node reads it after the one that writes it
    CONSTANT = "constant"  # set at admission, then read


@dataclass(frozen=True)
class TensorSpec:
    """Describes an input or output of a graph; ``dtype`` is numpy's name, or bfloat16;
    symbolic axes are strings.
    """

    name: str
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class GraphSpec:
    file: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class StateSpec:
    """Describes a tensor that a generation keeps between steps; ``shape`` is that of one row."""

    name: str
    kind: StateKind
    shape: Shape
    dtype: str


class AttentionKind(enum.StrEnum):
    """Says who looks at what."""

    CROSS = "cross"  # the target at the source
    ENCODER = "encoder"  # the source at itself
    DECODER = "decoder"  # the target, or a language model's text, at itself so far
    HOPS = "hops"  # each part of an embedding at the text: Lin et al., 2017


ATTENTION_OUTPUTS = {
    AttentionKind.CROSS: (STEP_ATTENTION, "attention"),
    AttentionKind.ENCODER: (ENCODE_ATTENTION, "encoder_attention"),
    AttentionKind.DECODER: (STEP_ATTENTION, "decoder_attention"),
    AttentionKind.HOPS: (ENCODE_ATTENTION, "hops"),
}


@dataclass(frozen=True)
class AttentionShape:
    """Counts what one kind of attention is told of; one axis has the heads of all layers."""

    num_layers: int
    num_heads: int

    @property
    def num_maps(self) -> int:
        return self.num_layers * self.num_heads


@dataclass(frozen=True)
class LanguageIds:
    """Holds what one language adds around a text."""

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    prompt_prefix: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tokens:
    """Special ids. A source is ``source_prefix + text + source_suffix``, a target starts with
    ``prompt_prefix`` and ends before one of ``stop``.

    ``sources`` and ``targets`` say what languages add, by their codes: in front of the source that
    of the target language, then that of its own; at its end that of its own; to the target's
    beginning that of the target language.
    """

    pad: int
    bos: int
    eos: int
    source_prefix: tuple[int, ...]
    source_suffix: tuple[int, ...]
    prompt_prefix: tuple[int, ...]
    stop: tuple[int, ...]
    unk: int | None = None  # stands for what the vocabulary cannot say, if anything does
    forced_eos: int | None = None  # what the last token must be that a request's length allows
    sources: dict[str, LanguageIds] = field(default_factory=dict)
    targets: dict[str, LanguageIds] = field(default_factory=dict)

    def between(self, source: str, target: str) -> "Tokens":
        """Return the ids of one pair of languages; of a model without language tokens the same."""
        own = self.sources.get(source, LanguageIds())
        other = self.targets.get(target, LanguageIds())
        return replace(
            self,
            source_prefix=other.source_prefix + own.source_prefix + self.source_prefix,
            source_suffix=self.source_suffix + own.source_suffix,
            prompt_prefix=self.prompt_prefix + other.prompt_prefix,
        )


class Activation(enum.StrEnum):
    """Says how a classifier's logits become scores."""

    SIGMOID = "sigmoid"  # each label by itself
    SOFTMAX = "softmax"  # the labels together
    NONE = "none"  # the logits are the scores


@dataclass(frozen=True)
class EncoderSpec:
    """Says what a model makes of a text that only encodes.

    dimension: of an embedding; None of a classifier. is_normalised: embeddings have length 1.
    labels: of a classifier, one for each logit; a reranker has one. activation: likewise.
    separator: ids between the texts of a pair, ``source_prefix + first + separator + second +
        source_suffix``; where the graph reads ``source_types``, they are 0 up to the separator's
        last and then 1. None of a model that takes no pairs.
    prompts: what is put in front of a text, as text, by the names that requests choose them by.
    default_prompt: the name of what is put in front where a request names none.
    """

    dimension: int | None = None
    is_normalised: bool = False
    labels: tuple[str, ...] = ()
    activation: Activation = Activation.NONE
    separator: tuple[int, ...] | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None


@dataclass(frozen=True)
class Limits:
    """``max_target_tokens`` counts prompt and output together: the capacity of append states; 0
    of a model that only encodes.
    """

    max_source_tokens: int | None
    max_target_tokens: int


@dataclass(frozen=True)
class Manifest:
    format_version: int
    name: str
    task: Task
    architecture: str
    precision: Precision
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    tokens: Tokens
    limits: Limits
    graphs: dict[str, GraphSpec]
    states: tuple[StateSpec, ...]
    vocab_size: int
    window: int  # how many of the best tokens the step graph returns per row; 0 without one
    files: dict[str, str]  # file name to SHA-256, of every file but bundle.json itself
    source_vocab_size: int | None = None  # None: that of the target, vocab_size
    chat_template: str | None = None  # in Jinja, as Hugging Face's tokenizers have them
    generation: dict[str, Any] = field(default_factory=dict)  # what requests do not say
    quality: dict[str, Any] = field(default_factory=dict)
    alignment_heads: tuple[int, ...] = ()  # the heads of step_attention that align best
    attention: dict[str, AttentionShape] = field(default_factory=dict)
    encoder: EncoderSpec | None = None  # of the tasks embed and classify, which have no step

    @property
    def num_attention_heads(self) -> int:
        """Count the heads whose attention over the source is told; 0 where none is."""
        spec = self.attention_output(AttentionKind.CROSS)
        return 0 if spec is None else int(spec.shape[1])

    @property
    def attention_shapes(self) -> dict[AttentionKind, AttentionShape]:
        """Say of which kinds attention is told. A bundle that does not say tells of its source, as
        of one layer.
        """
        if self.attention:
            return {kind: self.attention[kind] for kind in AttentionKind if kind in self.attention}
        num_heads = self.num_attention_heads
        return {AttentionKind.CROSS: AttentionShape(1, num_heads)} if num_heads else {}

    def attention_output(self, kind: AttentionKind) -> TensorSpec | None:
        """Find the output that tells of a kind of attention, if any does."""
        graph, name = ATTENTION_OUTPUTS[kind]
        outputs = self.graphs[graph].outputs if graph in self.graphs else ()
        return next((spec for spec in outputs if spec.name == name), None)

    @property
    def num_verified(self) -> int:
        """Count the tokens of a row that the graph ``verify`` takes; 0 without that graph."""
        if VERIFY not in self.graphs:
            return 0
        return next(int(spec.shape[1]) for spec in self.graphs[VERIFY].inputs if spec.name == "ids")

    @property
    def has_shortlist(self) -> bool:
        """Tell whether the step graph scores each row's own candidates only."""
        step = self.graphs.get("step")
        return step is not None and any(spec.name == "shortlist" for spec in step.inputs)
