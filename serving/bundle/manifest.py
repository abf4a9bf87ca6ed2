"""The manifest of a bundle, ``bundle.json``: a few graphs and a list of named state tensors.

The manifest is data only; ``opening`` checks the files of the bundle against it.
"""

import enum
from dataclasses import dataclass, field, replace
from typing import Any

FORMAT_VERSION = 3
SPLIT_TOKENS = 100  # of translators that do not say: loadtest/LOG.md has chrF by this number
MANIFEST_FILE = "bundle.json"
TOKENIZER_FILE = "tokenizer.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"  # if it is not that of the source
SHORTLIST_FILE = "shortlist.safetensors"
WORDS_FILE = "words.txt"  # source words that a translator knows
CARD_FILE = "README.md"
BATCH = "batch"  # leading axis of every tensor of a graph
SOURCE = "source"  # axis of a constant state: source positions, padded to the engine's span
LENGTH = "length"  # axis of an append state: the capacity, limits.max_target_tokens
CANDIDATES = "candidates"  # axis of the rows' lexical shortlists, padded to the longest
UNION = "union"  # axis of all tokens that are on the shortlist of a row
WANTS_LOGP = "wants_logp"  # input; if false, the step graph does not normalise its scores
EDITS = "edits"  # axis of the scores that the select graph changes in each row
SOURCE_TYPES = "source_types"  # input of encode: 0 or 1, the text of a pair that a token belongs to
PIXELS = "pixels"  # input of encode in place of tokens: uint8 [batch, height, width, 3]
FEATURES = "features"  # input of encode in place of tokens: float32 [batch, mels, frames]
EMBEDDING = "embedding"  # output of encode for task embed
LOGITS = "logits"  # output of step, or of encode for the tasks classify and classify-tokens
TOP_LOGP, TOP_IDS = "top_logp", "top_ids"  # outputs of step, or of encode for task fill-mask
LOGP = "logp"  # output of step on devices, and in older bundles, in place of the logits
SELECT = "select"  # the graph that chooses next tokens on a device
MAX_TOP_K = 1024  # the largest top_k of this graph
STEP_ATTENTION = "step_attention"  # the step graph with attention weights as further outputs
ENCODE_ATTENTION = "encode_attention"  # the encode graph with attention weights
ATTENDED = "attended"  # input and axis: number of target positions to return weights for

Shape = tuple[int | str, ...]


class Task(enum.StrEnum):
    TRANSLATE = "translate"
    GENERATE = "generate"
    TRANSCRIBE = "transcribe"  # the text of speech
    EMBED = "embed"  # a vector for each text
    CLASSIFY = "classify"  # logits for each text, or pair of texts
    CLASSIFY_TOKENS = "classify-tokens"  # logits for each token of a text
    FILL_MASK = "fill-mask"  # the likeliest tokens in the place of each masked one

    @property
    def only_encodes(self) -> bool:
        """Return whether a request ends with its encoding; then there is no graph ``step``."""
        return self not in (Task.TRANSLATE, Task.GENERATE, Task.TRANSCRIBE)


class Precision(enum.StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"


DEVICE_PRECISIONS = (Precision.BF16, Precision.FP16)


class StateKind(enum.StrEnum):
    """How a state changes with each token; its buffers are in `serving/engine/states/kind.py`."""

    APPEND = "append"  # one position is added, in place
    REPLACE = "replace"  # overwritten
    UPDATE = "update"  # overwritten in place: no node reads it after the one that writes it
    CONSTANT = "constant"  # set at admission, then read


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a graph. dtype: as in numpy, or bfloat16. Symbolic axes are strings."""

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
    """A tensor that a generation keeps between steps. shape: of one row."""

    name: str
    kind: StateKind
    shape: Shape
    dtype: str


class AttentionKind(enum.StrEnum):
    CROSS = "cross"  # the target attends to the source
    ENCODER = "encoder"  # the source attends to itself
    DECODER = "decoder"  # the target, or a language model's text, attends to itself so far
    HOPS = "hops"  # each part of an embedding attends to the text: Lin et al., 2017


ATTENTION_OUTPUTS = {
    AttentionKind.CROSS: (STEP_ATTENTION, "attention"),
    AttentionKind.ENCODER: (ENCODE_ATTENTION, "encoder_attention"),
    AttentionKind.DECODER: (STEP_ATTENTION, "decoder_attention"),
    AttentionKind.HOPS: (ENCODE_ATTENTION, "hops"),
}


@dataclass(frozen=True)
class AttentionShape:
    """The number of layers and heads of one attention kind. In tensors they are one axis."""

    num_layers: int
    num_heads: int

    @property
    def num_maps(self) -> int:
        return self.num_layers * self.num_heads


@dataclass(frozen=True)
class LanguageIds:
    """Token ids that one language adds to a text."""

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    prompt_prefix: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tokens:
    """Special token ids. A source is ``source_prefix + text + source_suffix``. A target starts with
    ``prompt_prefix`` and ends before one of ``stop``.

    sources, targets: ids that languages add, by language code; see ``with_languages``.
    unk: stands for unknown text. forced_eos: the last token of a request of maximal length.
    """

    pad: int
    bos: int
    eos: int
    source_prefix: tuple[int, ...]
    source_suffix: tuple[int, ...]
    prompt_prefix: tuple[int, ...]
    stop: tuple[int, ...]
    unk: int | None = None
    forced_eos: int | None = None
    sources: dict[str, LanguageIds] = field(default_factory=dict)
    targets: dict[str, LanguageIds] = field(default_factory=dict)

    def with_languages(self, source: str, target: str) -> "Tokens":
        """Return the ids for a pair of languages.

        The source begins with the ids of the target language, then of the source language; it ends
        with those of the source language. The target begins with the ids of the target language.
        """
        source_ids = self.sources.get(source, LanguageIds())
        target_ids = self.targets.get(target, LanguageIds())
        return replace(
            self,
            source_prefix=target_ids.source_prefix + source_ids.source_prefix + self.source_prefix,
            source_suffix=self.source_suffix + source_ids.source_suffix,
            prompt_prefix=self.prompt_prefix + target_ids.prompt_prefix,
        )


@dataclass(frozen=True)
class LengthDecay:
    """The scores of stop tokens rise by `factor` to the power of the number of generated tokens
    beyond `start`, which is below 0 where tokens of the prompt count.
    """

    start: int
    factor: float


@dataclass(frozen=True)
class LogitsProcessors:
    """The logits processors that a model's makers ask for in every request, by the names and with
    the effects that they have in Hugging Face's `generate`.

    bad_words_ids: sequences of tokens that are not generated; a stop token alone still is.
    suppress_tokens, begin_suppress_tokens: tokens that are not generated, or not as the first one.
    encoder_no_repeat_ngram_size: n-grams of the source, or of a language model's prompt, are not
        generated; 0 is off.
    encoder_repetition_penalty: favours tokens of the source, or of the prompt, above 1.
    renormalize_logits: probabilities add up to 1 again afterwards, which counts in a beam search.
    """

    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    encoder_no_repeat_ngram_size: int = 0
    encoder_repetition_penalty: float = 1.0
    exponential_decay_length_penalty: LengthDecay | None = None
    renormalize_logits: bool = False

    @property
    def change_nothing(self) -> bool:
        return replace(self, renormalize_logits=False) == NO_LOGITS_PROCESSORS

    @property
    def token_ids(self) -> set[int]:
        """Return all tokens that are named."""
        words = (token_id for word in self.bad_words_ids for token_id in word)
        return {*words, *self.suppress_tokens, *self.begin_suppress_tokens}


NO_LOGITS_PROCESSORS = LogitsProcessors()


class Activation(enum.StrEnum):
    """The function that computes scores from a classifier's logits."""

    SIGMOID = "sigmoid"  # each label by itself
    SOFTMAX = "softmax"  # the labels together
    NONE = "none"  # the logits are the scores


@dataclass(frozen=True)
class EncoderSpec:
    """The output of a model that only encodes.

    dimension: of an embedding; None for a classifier. is_normalised: embeddings have length 1.
    labels: of a classifier, one for each logit; a reranker has one. activation: of a classifier.
    mask_id: the token that stands for a word to guess, for task fill-mask.
    separator: ids between the texts of a pair, ``source_prefix + first + separator + second +
        source_suffix``; None if the model takes no pairs. ``source_types``, if the graph reads
        them, are 0 up to the end of the separator and then 1.
    prompts: texts that can be put before an input, by name.
    default_prompt: the name of the prompt for requests that name none.
    """

    dimension: int | None = None
    is_normalised: bool = False
    labels: tuple[str, ...] = ()
    activation: Activation = Activation.NONE
    mask_id: int | None = None
    separator: tuple[int, ...] | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None


@dataclass(frozen=True)
class PictureSpec:
    """How a picture becomes the pixels that the encoder reads.

    size: pixels of a side. resized: the side that the whole picture is resized to, in both
        directions; the middle of it is read. resample: the filter, as Pillow names it.
    num_class_tokens: positions of the source before those of the patches, row after row.
    """

    size: int
    resized: int
    resample: str
    num_class_tokens: int


@dataclass(frozen=True)
class AudioSpec:
    """How sound becomes the features that the encoder reads, and the tokens that a transcript is
    written with (Radford et al. 2022, Whisper).

    sampling_rate: samples a second, of one channel. num_mels: bands of the spectrogram.
    num_frames: frames of a window, which is what the encoder reads at once. hop: samples from the
        beginning of a frame to that of the next. fft_size: samples of a frame.
    languages: the token of each language by its code; empty for models of one language.
    transcribe, translate: the tokens of the two tasks; None for models of one language.
    start: the token before language and task. previous: the token before the text of the window
        before. no_speech: its probability after `start` is that of a window without speech.
    no_timestamps: forced for a transcript without times. first_timestamp: of 0 s; those of
        later times follow it. timestamp_step: seconds from one to the next.
    max_initial_timestamp: seconds at which a window's first segment begins at the latest.
    """

    sampling_rate: int
    num_mels: int
    num_frames: int
    hop: int
    fft_size: int
    start: int
    previous: int
    no_speech: int
    no_timestamps: int
    first_timestamp: int
    timestamp_step: float
    max_initial_timestamp: float
    languages: dict[str, int] = field(default_factory=dict)
    transcribe: int | None = None
    translate: int | None = None

    @property
    def window_samples(self) -> int:
        return self.num_frames * self.hop

    @property
    def window_seconds(self) -> float:
        return self.window_samples / self.sampling_rate


@dataclass(frozen=True)
class Limits:
    """max_target_tokens: prompt and output together, the capacity of append states; 0 for a model
    that only encodes.
    split_tokens: of a translator, the most source tokens of a segment: longer sentences are cut at
    clauses, because a model repeats itself above the lengths that it was trained on. None where
    they are not known: then `SPLIT_TOKENS`.
    """

    max_source_tokens: int | None
    max_target_tokens: int
    split_tokens: int | None = None


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
    window: int  # number of best tokens that the step graph, or a fill-mask one, returns; or 0
    files: dict[str, str]  # SHA-256 of every file except bundle.json, by name
    source_vocab_size: int | None = None  # None: vocab_size, that of the target
    chat_template: str | None = None  # in Jinja, as in Hugging Face's tokenizers
    # Of a language model that translates: the message that asks for a translation, with
    # {source_language}, {target_language}, {source_code}, {target_code} and {text} in its strings.
    translation_message: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)  # recommended values of options
    logits_processors: LogitsProcessors = NO_LOGITS_PROCESSORS  # of every request
    quality: dict[str, Any] = field(default_factory=dict)
    alignment_heads: tuple[int, ...] = ()  # the heads of step_attention that align best
    attention: dict[str, AttentionShape] = field(default_factory=dict)
    encoder: EncoderSpec | None = None  # for the tasks that only encode
    picture: PictureSpec | None = None  # for models whose source is a picture
    audio: AudioSpec | None = None  # for models whose source is sound
    domain: str | None = None  # what texts it was trained on, in a few words; None: general text
    origin: str | None = None  # what it was exported from, such as "firefox/en-fr 3.0 base"

    @property
    def serves(self) -> Task:
        """Return what requests ask for: a language model may be there to translate."""
        return Task.TRANSLATE if self.translation_message else self.task

    @property
    def media_input(self) -> TensorSpec | None:
        """Return the input of the encode graph in place of tokens; None if it reads tokens."""
        inputs = self.graphs["encode"].inputs if "encode" in self.graphs else ()
        return next((spec for spec in inputs if spec.name in (PIXELS, FEATURES)), None)

    @property
    def num_attention_heads(self) -> int:
        """Return the number of cross-attention heads; 0 if their weights are no output."""
        spec = self.attention_output(AttentionKind.CROSS)
        return 0 if spec is None else int(spec.shape[1])

    @property
    def attention_shapes(self) -> dict[AttentionKind, AttentionShape]:
        """Return the attention kinds that requests may ask for: none of a language model that
        translates. Old manifests list none; their cross-attention counts as one layer.
        """
        if self.translation_message:
            return {}
        if self.attention:
            return {kind: self.attention[kind] for kind in AttentionKind if kind in self.attention}
        num_heads = self.num_attention_heads
        return {AttentionKind.CROSS: AttentionShape(1, num_heads)} if num_heads else {}

    def attention_output(self, kind: AttentionKind) -> TensorSpec | None:
        """Return the graph output with the weights of an attention kind, if there is one."""
        graph, name = ATTENTION_OUTPUTS[kind]
        outputs = self.graphs[graph].outputs if graph in self.graphs else ()
        return next((spec for spec in outputs if spec.name == name), None)

    @property
    def scores(self) -> TensorSpec:
        """Return the output of the step graph for all tokens that it scores: `logits`, some of
        which may be of no token, or `logp`.
        """
        outputs = self.graphs["step"].outputs
        return next(spec for spec in outputs if spec.name in (LOGITS, LOGP))

    @property
    def has_shortlist(self) -> bool:
        """Return whether the step graph scores only a shortlist of tokens for each row."""
        step = self.graphs.get("step")
        return step is not None and any(spec.name == "shortlist" for spec in step.inputs)
