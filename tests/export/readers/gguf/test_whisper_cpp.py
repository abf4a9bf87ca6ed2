"""Files of whisper.cpp give the log-probabilities of the model that they were made from."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.requests.request import Audio
from tests.export.readers.whispers import (
    ENGLISH,
    FRAMES,
    MELS,
    NO_TIMESTAMPS,
    START,
    TRANSCRIBE,
    VOCABULARY,
    openai_sizes,
    openai_weights,
    random_whisper,
    write_ggml,
)

BYTES = [bytes([value]) for value in range(256)]
KINDS = {Kind.F32: None, Kind.F16: None, Kind.Q8_0: 8, Kind.Q5_1: 8, Kind.Q5_0: 8, Kind.Q4_0: 4}
IDS = [START, ENGLISH, TRANSCRIBE, NO_TIMESTAMPS, 100, 42, 7]


def write(path: Path, kind: Kind = Kind.F16, words: list[bytes] = BYTES, **sizes: Any) -> Path:
    model = random_whisper(VOCABULARY + len(words) - len(BYTES))
    return write_ggml(path, openai_sizes(model) | sizes, openai_weights(model), words, kind)


def their_log_probabilities(features: np.ndarray, kind: Kind) -> np.ndarray:
    """Of the same model, its matrices rounded as the file has them."""
    model = random_whisper()
    for name, weight in model.model.state_dict().items():
        if weight.ndim > 1 and "embed_positions" not in name:
            rounding = kind if weight.ndim == 2 or kind is Kind.F32 else Kind.F16
            rounded = dequantize(quantize(weight.numpy(), rounding), rounding)
            weight.copy_(torch.from_numpy(rounded.reshape(weight.shape).astype(np.float32)))
    with torch.inference_mode():
        inputs = torch.from_numpy(features)[None]
        logits = model(inputs, decoder_input_ids=torch.tensor([IDS])).logits[0]
    return logits.log_softmax(-1).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_bundles_compute_what_transformers_computes(tmp_path: Path, kind: Kind) -> None:
    checkpoint = read_model(write(tmp_path / "ggml-tiny.bin", kind))
    assert checkpoint.bits == KINDS[kind]
    export_checkpoint(checkpoint, tmp_path / "bundle", Precision.FP32)
    features = np.random.default_rng(0).uniform(-1, 1.5, (MELS, FRAMES)).astype(np.float32)
    rows = GraphRows(open_bundle(tmp_path / "bundle"), [Audio(features.tobytes(), FRAMES // 2)])
    ours = np.stack([rows.read([[token_id]])[0] for token_id in IDS])
    assert np.abs(ours - their_log_probabilities(features, kind)).max() < 1e-4


def test_tokens_follow_from_the_words(tmp_path: Path) -> None:
    checkpoint = read_model(write(tmp_path / "ggml-tiny.bin"))
    config: Any = checkpoint.config
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer)
    assert tokenizer.get_vocab_size() == VOCABULARY == config.vocab_size
    assert tokenizer.decode(tokenizer.encode("déjà vu").ids) == "déjà vu"
    assert config.audio.languages == {"en": 258, "zh": 259}
    names = {START: "<|startoftranscript|>", NO_TIMESTAMPS: "<|notimestamps|>", 366: "<|2.00|>"}
    assert {token_id: tokenizer.id_to_token(token_id) for token_id in names} == names
    assert checkpoint.conventions.logits_processors["begin_suppress_tokens"] == (32, 256)


def test_words_are_merged_in_the_order_of_their_ids(tmp_path: Path) -> None:
    words = [*BYTES, b"lo", b"ow", b"hel", b"he", b"hello", b"hell"]
    checkpoint = read_model(write(tmp_path / "a.bin", words=words))
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer)
    for text in ("hello", "low", "helow", "lhell"):
        assert tokenizer.encode(text).ids == merge_by_ranks(text.encode(), words)


def merge_by_ranks(text: bytes, words: list[bytes]) -> list[int]:
    """tiktoken's algorithm as plain loops: the two neighbours that make the word of the lowest id
    are merged first.
    """
    parts = [bytes([value]) for value in text]
    while True:
        pairs = [parts[i] + parts[i + 1] for i in range(len(parts) - 1)]
        ranks = [words.index(pair) for pair in pairs if pair in words]
        if not ranks:
            return [words.index(part) for part in parts]
        place = pairs.index(words[min(ranks)])
        parts[place : place + 2] = [words[min(ranks)]]


def problems_of(path: Path) -> list[str]:
    with pytest.raises(CheckpointError) as caught:
        read_model(path)
    return caught.value.problems


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"n_vocab": VOCABULARY - 2}, "1 to 100 of languages"),
        ({"n_vocab": 10**6}, "1 to 100 of languages"),
        ({"n_text_head": 8}, "n_text_head 8 must be 4, as n_audio_head"),
        ({"n_mels": 21}, "encoder.conv1.weight has shape [32, 20, 3], expected [32, 21, 3]"),
        ({"n_text_layer": 3}, "decoder.blocks.2.attn.query.weight is missing"),
        ({"n_text_layer": 1}, "decoder.blocks.1.attn.query.weight is not expected"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    problems = problems_of(write(tmp_path / "a.bin", **changes))
    assert any(problem in each for each in problems), problems


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin")
    data = path.read_bytes()
    for size in (4, 40, 100, 17_000, 18_000, len(data) - 1):
        path.write_bytes(data[:size])
        [problem] = problems_of(path)
        assert "is cut short or damaged" in problem


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (48, -1, "is damaged: it tells of -1 filters"),
        (44, 1002, "has blocks of Q8_0 in version 1; version 2 is read"),
        (56 + 4 * 201 * MELS, 2**30, "is damaged: it tells of 1073741824 words"),
    ],
)
def test_a_damaged_header_is_refused(tmp_path: Path, place: int, value: int, problem: str) -> None:
    path = write(tmp_path / "a.bin", Kind.Q8_0)
    data = bytearray(path.read_bytes())
    data[place : place + 4] = struct.pack("<i", value)
    path.write_bytes(data)
    assert problem in problems_of(path)[0]


def test_tensors_of_unknown_types_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin", Kind.F32)
    name = b"encoder.conv1.weight"
    data = path.read_bytes()
    place = data.index(name) - 3 * 4 - 4
    path.write_bytes(data[:place] + struct.pack("<i", 99) + data[place + 4 :])
    assert problems_of(path) == ["encoder.conv1.weight: tensors of type 99 cannot be read"]
