"""Whisper tiny.en as its folder of CTranslate2 holds it, on speech that was read by a person,
beside what transformers and CTranslate2 make of the same weights.

The folder comes with `attendant pull whisper-tiny.en`, which leaves it in the user's cache. Tests
look for it there, or where WHISPER_FOLDER says. Recordings are those of Debian's package
pocketsphinx-testdata.
"""

import os
import re
import wave
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.downloads import cache_folder
from export.readers.ctranslate2.container import read_model_file
from export.readers.reading import read_model
from serving.audio.features import log_mel
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.parameters import ProcessorParams, TimestampRules
from serving.requests.request import Audio, GenerationRequest
from serving.text.tokenizer import Tokenizer
from tests.serving.engine.driving import run_all

FOLDER = Path(os.environ.get("WHISPER_FOLDER", cache_folder() / "whisper-tiny.en"))
RECORDINGS = Path("/usr/share/pocketsphinx/test/data/librivox")
END, START, NO_TIMESTAMPS, FIRST_TIME = 50256, 50257, 50362, 50363
LAYER = {  # theirs, and the names of transformers
    "self_attention/layer_norm": ["self_attn_layer_norm"],
    "self_attention/linear_0": [f"self_attn.{part}_proj" for part in "qkv"],
    "self_attention/linear_1": ["self_attn.out_proj"],
    "attention/layer_norm": ["encoder_attn_layer_norm"],
    "attention/linear_0": ["encoder_attn.q_proj"],
    "attention/linear_1": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
    "attention/linear_2": ["encoder_attn.out_proj"],
    "ffn/layer_norm": ["final_layer_norm"],
    "ffn/linear_0": ["fc1"],
    "ffn/linear_1": ["fc2"],
}
WORDS = {"gamma": "weight", "beta": "bias"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="WHISPER_FOLDER names no folder"),
    pytest.mark.skipif(not RECORDINGS.is_dir(), reason="pocketsphinx-testdata is not installed"),
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundles") / "whisper"
    export_checkpoint(read_model(FOLDER), folder, Precision.FP32)
    return open_bundle(folder)


@pytest.fixture(scope="module")
def engine(bundle: Bundle) -> Engine:
    return Engine(bundle, EngineConfig(threads=2))


@pytest.fixture(scope="module")
def samples() -> list[np.ndarray]:
    """The recordings: int16, 16 kHz."""
    recordings = []
    for path in sorted(RECORDINGS.glob("*.wav")):
        with wave.open(str(path)) as file:
            assert file.getframerate() == 16000
            recordings.append(np.frombuffer(file.readframes(file.getnframes()), np.int16))
    return recordings


@pytest.fixture(scope="module")
def features(samples: list[np.ndarray]) -> list[np.ndarray]:
    """Of transformers' extractor: f32 [80, 3000] for each recording."""
    extract = WhisperFeatureExtractor()
    floats = [recording.astype(np.float32) / 32768 for recording in samples]
    return [extract(part, sampling_rate=16000).input_features[0] for part in floats]


@pytest.fixture(scope="module")
def theirs() -> WhisperForConditionalGeneration:
    """The same weights in transformers."""
    config = WhisperConfig(
        vocab_size=51864,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        pad_token_id=END,
        eos_token_id=END,
        bos_token_id=END,
    )
    model = WhisperForConditionalGeneration(config).eval()
    variables = read_model_file(np.memmap(FOLDER / "model.bin", np.uint8, "r")).tensors
    state = {}
    for name, values in ((name, variable.read()) for name, variable in variables.items()):
        for theirs_name, part in zip(*_their_names(name, values), strict=True):
            state[theirs_name] = torch.from_numpy(np.array(part, np.float32))
    problems = model.load_state_dict(state, strict=False)
    assert problems.missing_keys == [] and all("k_proj.bias" in n for n in problems.unexpected_keys)
    return model


def _their_names(name: str, values: np.ndarray) -> tuple[list[str], list[np.ndarray]]:
    """The names in transformers of what a variable of CTranslate2 holds, and their parts of it."""
    stack, *_ = name.split("/")
    end = name.rpartition("/")[2]
    word = WORDS.get(end, end)
    if name == "decoder/projection/weight":
        return ["proj_out.weight"], [values]
    if match := re.fullmatch(r"\w+/layer_(\d+)/(.+)/\w+", name):
        names = [f"model.{stack}.layers.{match[1]}.{each}.{word}" for each in LAYER[match[2]]]
        return names, np.split(values, len(names))
    place = name.removeprefix(f"{stack}/").rpartition("/")[0]
    tables = {"embeddings": "embed_tokens", "position_encodings": "embed_positions"}
    word = "weight" if place in tables else word
    return [f"model.{stack}.{tables.get(place, place)}.{word}"], [values]


def ask(
    engine: Engine,
    features: list[np.ndarray],
    prompt: tuple[int, ...],
    *,
    has_times: bool = False,
) -> list[list[int]]:
    """What the engine writes, all windows together."""
    rules = TimestampRules(END, NO_TIMESTAMPS, FIRST_TIME, 50) if has_times else None
    requests = [
        GenerationRequest(
            str(number),
            audio=Audio(np.ascontiguousarray(window, np.float32).tobytes(), 1500),
            prompt_ids=prompt,
            is_whole=True,
            processors=ProcessorParams(timestamps=rules),
        )
        for number, window in enumerate(features)
    ]
    stories = run_all(engine, requests)
    return [stories[str(number)].token_ids for number in range(len(features))]


def test_spectrograms_are_those_of_transformers(
    bundle: Bundle, samples: list[np.ndarray], features: list[np.ndarray]
) -> None:
    spec = bundle.manifest.audio
    assert spec is not None
    for recording, expected in zip(samples, features, strict=True):
        np.testing.assert_allclose(log_mel(recording, spec), expected, atol=1e-4)


def test_log_probabilities_are_those_of_transformers(
    bundle: Bundle,
    engine: Engine,
    features: list[np.ndarray],
    theirs: WhisperForConditionalGeneration,
) -> None:
    for window, text in zip(features, ask(engine, features, (START, NO_TIMESTAMPS)), strict=True):
        ids = [START, NO_TIMESTAMPS, *text]
        with torch.inference_mode():
            inputs = torch.from_numpy(window)[None]
            logits = theirs(inputs, decoder_input_ids=torch.tensor([ids])).logits[0]
        rows = GraphRows(bundle, [Audio(window.tobytes(), 1500)])
        ours = np.stack([rows.read([[token_id]])[0] for token_id in ids])
        assert np.abs(ours - logits.log_softmax(-1).numpy()).max() < 1e-4


def test_what_is_written_is_what_was_read_aloud(
    bundle: Bundle, engine: Engine, features: list[np.ndarray]
) -> None:
    tokenizer = Tokenizer(bundle.tokenizer_path)
    texts = [tokenizer.decode(ids) for ids in ask(engine, features, (START, NO_TIMESTAMPS))]
    assert texts[0].strip() == (
        "And Mr. John Dashwood had then leisure to consider how much there might be prudently in"
        " his power to do for them."
    )
    assert texts[4].strip() == "He might even have been made amiable himself."


@pytest.mark.parametrize("has_times", [False, True])
def test_likeliest_tokens_are_those_of_ctranslate2(
    engine: Engine, features: list[np.ndarray], has_times: bool
) -> None:
    model = ctranslate2.models.Whisper(str(FOLDER), compute_type="float32", intra_threads=2)
    prompt = (START,) if has_times else (START, NO_TIMESTAMPS)
    expected = [
        model.generate(
            ctranslate2.StorageView.from_array(window[None]),
            [[*prompt]],
            beam_size=1,
            max_initial_timestamp_index=50,
        )[0].sequences_ids[0]
        for window in features
    ]
    assert ask(engine, features, prompt, has_times=has_times) == expected
