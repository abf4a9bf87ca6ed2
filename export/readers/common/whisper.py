"""What readers of Whisper share: its special tokens, tokenizers, and shapes and names of weights.

After the words of a vocabulary come the special tokens, in this order (openai/whisper,
tokenizer.py): the end of a text, the start of a transcript, the languages, two tasks, four others,
and a token for each time from 0 to 30 s.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer

from export.readers.common.byte_level import byte_level_bpe
from export.readers.common.pieces import using_library
from export.readers.common.shapes import Shapes, transformer_shapes
from export.readers.common.weights import TensorReference, WeightSource
from models.architectures.whisper.config import WhisperConfig
from models.conventions import Conventions
from models.safetensors import Array

KERNEL_SIZE = 3  # frames that a convolution reads at once
END, START, PREVIOUS = "<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>"
TRANSLATE, TRANSCRIBE, NO_TIMESTAMPS = "<|translate|>", "<|transcribe|>", "<|notimestamps|>"
LANGUAGE_MODEL = "<|startoflm|>"
NO_SPEECH = ("<|nocaptions|>", "<|nospeech|>")  # the name that most files have, and a later one
FIRST_TIME = "<|0.00|>"
TIME_STEP = 0.02  # seconds
LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
TIME = re.compile(r"<\|\d+\.\d\d\|>")
NEWER_CODES = {"iw": "he"}  # files of transformers have tokens of the older code of Hebrew
_CODES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th"
    " ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl"
    " mr pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as"
    " tt haw ln ha ba jw su yue"
)
# In the order of their tokens. Models before large-v3 lack the last one.
LANGUAGES = tuple(_CODES.split())
_SIGNS = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪"
_SYMBOLS = (*'"#()*+/:;<=>@[\\]^_`{|}~「」『』', *_SIGNS.split())
_NOTES = "♩♪♫♬♭♮♯"  # some are several tokens, of which the first is only of such signs


@dataclass(frozen=True)
class SpeechTokens:
    """The special tokens of a Whisper. languages: empty for a model of English alone; then the
    tokens of the two tasks have no use.
    """

    end: int
    start: int
    translate: int
    transcribe: int
    language_model: int
    previous: int
    no_speech: int
    no_timestamps: int
    first_timestamp: int
    languages: Mapping[str, int]

    @property
    def audio_options(self) -> dict[str, Any]:
        """Return the options of the architecture's section `audio` that name tokens."""
        tasks = {"translate": self.translate, "transcribe": self.transcribe}
        return {
            "previous": self.previous,
            "no_speech": self.no_speech,
            "no_timestamps": self.no_timestamps,
            "first_timestamp": self.first_timestamp,
            "languages": dict(self.languages),
            **(tasks if self.languages else {}),
        }

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the architecture that depend on tokens, but those of `audio`."""
        languages = tuple(self.languages) or ("en",)
        return {
            "pad_id": self.end,
            "bos_id": self.start,
            "eos_id": self.end,
            "source_languages": languages,
            "target_languages": languages,
        }

    def conventions(
        self, suppressed: Iterable[int], suppressed_first: Iterable[int]
    ) -> Conventions:
        """Return the conventions of a model that never generates tokens of the first list, and does
        not begin with those of the second.
        """
        return Conventions(
            prompt_prefix=(self.start,),
            stop=(self.end,),
            generation={"temperature": 0.0},
            logits_processors={
                "suppress_tokens": tuple(suppressed),
                "begin_suppress_tokens": tuple(suppressed_first),
            },
        )


def read_speech_tokens(ids: Mapping[str, int], problems: list[str]) -> SpeechTokens | None:
    """Return the special tokens of a vocabulary; None, and a problem, if one is missing.

    ids: of at least all special tokens, by their names. A model of English has tokens of languages,
    too, but its vocabulary of words is another: one token shorter.
    """
    names = (END, START, TRANSLATE, TRANSCRIBE, LANGUAGE_MODEL, PREVIOUS, NO_TIMESTAMPS, FIRST_TIME)
    no_speech = next((ids[name] for name in NO_SPEECH if name in ids), None)
    missing = [name for name in names if name not in ids]
    if missing or no_speech is None:
        problems.append(f"the vocabulary has no token {(missing or NO_SPEECH)[0]}")
        return None
    by_id = sorted(ids.items(), key=lambda item: item[1])
    matches = ((LANGUAGE.fullmatch(name), token_id) for name, token_id in by_id)
    languages = {
        NEWER_CODES.get(match[1], match[1]): token_id for match, token_id in matches if match
    }
    return SpeechTokens(
        end=ids[END],
        start=ids[START],
        translate=ids[TRANSLATE],
        transcribe=ids[TRANSCRIBE],
        language_model=ids[LANGUAGE_MODEL],
        previous=ids[PREVIOUS],
        no_speech=no_speech,
        no_timestamps=ids[NO_TIMESTAMPS],
        first_timestamp=ids[FIRST_TIME],
        languages={} if ids[END] == ENGLISH_END else languages,
    )


ENGLISH_END = 50256  # GPT-2's, whose vocabulary models of English have


def special_names(num_languages: int, num_times: int) -> list[str]:
    """Return the names of all special tokens in the order of their ids."""
    return [
        END,
        START,
        *(f"<|{code}|>" for code in LANGUAGES[:num_languages]),
        TRANSLATE,
        TRANSCRIBE,
        LANGUAGE_MODEL,
        PREVIOUS,
        NO_SPEECH[0],
        NO_TIMESTAMPS,
        *time_names(num_times),
    ]


def time_names(num_times: int) -> list[str]:
    """Return the names of the tokens of times."""
    return [f"<|{number * TIME_STEP:.2f}|>" for number in range(num_times)]


def add_times(tokenizer: bytes, num_times: int) -> bytes:
    """Return a `tokenizer.json` with the tokens of times, which some do without. Raises
    TokenizerError.
    """
    with using_library("tokenizer.json cannot be read"):
        parsed = Tokenizer.from_buffer(tokenizer)
        if parsed.token_to_id(FIRST_TIME) is not None:
            return tokenizer
        _add_tokens(parsed, time_names(num_times))
        return bytes(parsed.to_str(), "utf-8")


def make_speech_tokenizer(words: Sequence[str], special: Sequence[str]) -> bytes:
    """Return the `tokenizer.json` of a vocabulary. Raises TokenizerError.

    words: in the byte-level alphabet of GPT-2. A word is made by merging two others; as in
    openai/tiktoken, those of the lowest ids are merged first. special: names of the tokens after
    the words.
    """
    vocabulary = {word: token_id for token_id, word in enumerate(words)}
    tokenizer = byte_level_bpe(vocabulary, _find_merges(vocabulary), "gpt-2")
    _add_tokens(tokenizer, special)
    return bytes(tokenizer.to_str(), "utf-8")


def byte_level_name(data: bytes) -> str:
    """Return bytes in the alphabet of GPT-2's byte-level BPE."""
    return data.decode("latin-1").translate(_BYTE_NAMES)


def _name_bytes() -> dict[int, str]:
    """Return the character for each byte: printable ones are their own, the others follow after
    Latin-1 in the order of the bytes (openai/gpt-2, encoder.py, `bytes_to_unicode`).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = sorted({*range(256)} - printable)
    return {byte: chr(0x100 + number) for number, byte in enumerate(others)}


_BYTE_NAMES = _name_bytes()


def _find_merges(vocabulary: Mapping[str, int]) -> list[str]:
    """Return every pair of tokens that makes another one, in the order of the tokens made."""
    merges = []
    for word in vocabulary:  # in the order of ids
        pairs = ((word[:split], word[split:]) for split in range(1, len(word)))
        known = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
        known.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        merges += [f"{left} {right}" for left, right in known]
    return merges


def _add_tokens(tokenizer: Tokenizer, names: Sequence[str]) -> None:
    """Times are no special tokens: decoding leaves them in a text, as in published files."""
    tokenizer.add_tokens(
        [AddedToken(name, normalized=False, special=not TIME.fullmatch(name)) for name in names]
    )


def find_suppressed_tokens(
    tokenizer: bytes, tokens: SpeechTokens
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens that are never generated and those that are not generated first, where a
    file does not say them.

    The first are signs of what is not spoken, and special tokens that begin a transcript
    (openai/whisper, `Tokenizer.non_speech_tokens` and `DecodingTask._get_suppress_tokens`).
    """
    parsed = Tokenizer.from_buffer(tokenizer)

    def encode(text: str) -> list[int]:
        ids: list[int] = parsed.encode(text, add_special_tokens=False).ids
        return ids

    suppressed = {encode(" -")[0], encode(" '")[0]}  # at the beginning of a word
    for symbol in (*_SYMBOLS, *_NOTES):
        for ids in (encode(symbol), encode(f" {symbol}")):
            if len(ids) == 1 or symbol in _NOTES:
                suppressed.add(ids[0])
    suppressed |= {tokens.start, tokens.translate, tokens.transcribe}
    suppressed |= {tokens.language_model, tokens.previous, tokens.no_speech}
    return tuple(sorted(suppressed)), (*encode(" "), tokens.end)


def whisper_shapes(config: WhisperConfig) -> Shapes:
    """Return the shapes of all weights."""
    shapes = transformer_shapes(config)
    shapes.pop("source_embedding.weight", None)  # there are no words to read
    for number, dim in enumerate((config.audio.num_mels, config.d_model)):
        name = f"encoder.convolutions.{number}"
        shapes[f"{name}.weight"] = (config.d_model, KERNEL_SIZE * dim)
        shapes[f"{name}.bias"] = (config.d_model,)
    return shapes


def convolution_names(config: WhisperConfig, theirs: str) -> dict[str, str | WeightSource]:
    """Return the sources of the weights of both convolutions, which become linear layers of frames
    side by side.

    theirs: how they are named, with {number}, 1 or 2, and {part}, weight or bias. Their weights are
        [out, in, frames].
    """
    names: dict[str, str | WeightSource] = {}
    for number, in_dim in enumerate((config.audio.num_mels, config.d_model)):
        ours, shape = f"encoder.convolutions.{number}", (config.d_model, in_dim, KERNEL_SIZE)
        name = theirs.format(number=number + 1, part="weight")
        names[f"{ours}.weight"] = TensorReference(
            name, shape=shape, change=_lay_frames_side_by_side
        )
        names[f"{ours}.bias"] = theirs.format(number=number + 1, part="bias")
    return names


def _lay_frames_side_by_side(weight: Array) -> Array:
    return weight.transpose(0, 2, 1).reshape(len(weight), -1)
