"""Files of whisper.cpp, such as ggml-tiny.en.bin, in the format that ggml had before GGUF.

All numbers are of four bytes: the magic, ten sizes and the type of the weights; the filters of
spectrograms, which are not read; the words of the vocabulary, each with its length before it; then
tensors up to the end of the file, each with the number of its dimensions, the length of its name,
its type, its dimensions, the name and the data (whisper.cpp, models/convert-pt-to-ggml.py and
`whisper_model_load`).
"""

import math
import re
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as TensorType

from export.readers.common.cursor import Cursor, MalformedFile
from export.readers.common.openai_whisper import SIZES, OpenAIWhisper
from export.readers.common.pieces import TokenizerError
from export.readers.common.whisper import (
    END,
    LANGUAGES,
    byte_level_name,
    make_speech_tokenizer,
    special_names,
)
from export.readers.gguf.container import (
    FLOATS,
    MAX_DIMS,
    MOST_TENSORS,
    MOST_TEXTS,
    READABLE,
    Tensor,
    count_bits,
)
from models.checkpoint import Checkpoint, CheckpointError

MAGIC = b"lmgg"
NUM_OTHERS = 8  # special tokens that are neither languages nor times
# The type of the weights has the version of quantised types as its thousands: blocks of earlier
# versions lie differently.
VERSION_FACTOR, CURRENT_VERSION = 1000, 2
LAYER = re.compile(r"(en|de)coder\.blocks\.")


def can_read(path: Path) -> bool:
    """Return whether a file begins with the magic."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a Whisper, its weights still unread. Raises CheckpointError with every problem."""
    try:
        cursor = Cursor(np.memmap(path, np.uint8, mode="r"))
        cursor.bytes(len(MAGIC))
        sizes = dict(zip(SIZES, cursor.array("<i4", len(SIZES)).tolist(), strict=True))
        version = cursor.number("<i4") // VERSION_FACTOR
        num_mels, num_frequencies = (_read_count(cursor, "filters") for _ in range(2))
        cursor.array("<f4", num_mels * num_frequencies, "the filters")
        words = _read_words(cursor)
        tensors = _read_tensors(cursor)
        ids = _number_tokens(words, sizes["n_vocab"], sizes["n_audio_ctx"] + 1)
        tokenizer = make_speech_tokenizer(words, [*ids][len(words) :])
    except OSError as error:
        raise CheckpointError(path, [f"cannot be read: {error.strerror}"]) from None
    except MalformedFile as error:
        raise CheckpointError(path, [str(error)]) from None
    except TokenizerError as error:
        raise CheckpointError(path, error.problems) from None
    quantised = {tensor.kind.name for tensor in tensors.values()} - {kind.name for kind in FLOATS}
    if quantised and version != CURRENT_VERSION:
        message = f"has blocks of {', '.join(sorted(quantised))} in version {version}"
        raise CheckpointError(path, [f"{message}; version {CURRENT_VERSION} is read"])
    layers = [tensor for name, tensor in tensors.items() if LAYER.match(name)]
    bits = count_bits([tensor.kind for tensor in layers if len(tensor.shape) >= 2])
    stored = {name: tensor.as_stored() for name, tensor in tensors.items()}
    whisper = OpenAIWhisper(path, sizes, stored, bits)
    return whisper.read_checkpoint(tokenizer, ids, "file of whisper.cpp")


def _read_count(cursor: Cursor, what: str, most: int = 2**16) -> int:
    count = cursor.number("<i4", f"the number of {what}")
    if not 0 <= count <= most:
        raise MalformedFile(f"is damaged: it tells of {count} {what}, and at most {most} are read")
    return count


def _read_words(cursor: Cursor) -> list[str]:
    """Return the words in the alphabet of byte-level BPE."""
    count = _read_count(cursor, "words", MOST_TEXTS)
    lengths = (cursor.number("<u4", "the length of a word") for _ in range(count))
    words = [byte_level_name(cursor.bytes(length)) for length in lengths]
    return words[: words.index(END)] if END in words else words


def _number_tokens(words: list[str], vocab_size: int, num_times: int) -> dict[str, int]:
    """Return the ids of all tokens. The file has no names of special tokens: how many languages
    there are follows from the size of the vocabulary.
    """
    num_languages = vocab_size - len(words) - NUM_OTHERS - num_times
    if not 1 <= num_languages <= len(LANGUAGES):
        raise MalformedFile(
            f"has {len(words)} words of {vocab_size} tokens: a Whisper has"
            f" {NUM_OTHERS + num_times} others, and 1 to {len(LANGUAGES)} of languages"
        )
    names = [*words, *special_names(num_languages, num_times)]
    if len(ids := {name: token_id for token_id, name in enumerate(names)}) != len(names):
        raise MalformedFile("is damaged: two words of its vocabulary are the same")
    return ids


def _read_tensors(cursor: Cursor) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    while cursor.num_left and len(tensors) <= MOST_TENSORS:
        num_dims, length, number = cursor.array("<i4", 3, "the header of a tensor").tolist()
        if not 1 <= num_dims <= MAX_DIMS or not 0 <= length < 2**10:
            raise MalformedFile(f"is damaged: a tensor has {num_dims} dimensions")
        shape = tuple(cursor.array("<u4", num_dims, "the shape of a tensor")[::-1].tolist())
        name = cursor.bytes(length).decode("utf-8", "replace")
        if name in tensors:
            raise MalformedFile(f"has two tensors called {name}")
        tensors[name] = _read_tensor(cursor, name, shape, number)
    return tensors


def _read_tensor(cursor: Cursor, name: str, shape: tuple[int, ...], number: int) -> Tensor:
    """Biases of convolutions are columns in the file, and vectors here."""
    kind = next((kind for kind in READABLE if kind == number), None)
    if kind is None:
        kinds = {kind.value: kind.name for kind in TensorType}
        raise MalformedFile(f"{name}: tensors of type {kinds.get(number, number)} cannot be read")
    block, size = GGML_QUANT_SIZES[kind]
    if 0 in shape or shape[-1] % block:
        raise MalformedFile(f"{name}: has shape {list(shape)}, which blocks of {block} do not fill")
    num_rows, row_bytes = math.prod(shape[:-1]), shape[-1] // block * size
    data = cursor.array("u1", num_rows * row_bytes, f"the data of {name}")
    is_column = name.endswith(".bias") and shape[1:] == (1,)
    return Tensor(kind, shape[:1] if is_column else shape, data.reshape(num_rows, row_bytes))
