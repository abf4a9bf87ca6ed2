"""Imported models of Whisper compute what `transformers` computes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import GenerationMixin, WhisperForConditionalGeneration

from export.bundling.running import GraphRows
from export.bundling.verify import TranslationVerifier
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from models.architectures.whisper.config import WhisperConfig
from models.checkpoint import Checkpoint
from models.loading import load_module
from serving.bundle.manifest import AudioSpec, Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.parameters import BeamParams
from serving.requests.request import Audio, FinishedEvent, GenerationRequest
from tests.export.readers.hugging_face.changing import change, change_weights, problems_of
from tests.export.readers.hugging_face.transcribers import (
    END,
    ENGLISH,
    FAMILIES,
    FIRST_TIMESTAMP,
    FRENCH,
    NO_SPEECH,
    NO_TIMESTAMPS,
    NUM_POSITIONS,
    PREVIOUS,
    START,
    SUPPRESSED,
    SUPPRESSED_FIRST,
    TRANSCRIBE,
    TRANSLATE,
    VOCABULARY,
    random_features,
    save,
)
from tests.serving.engine.driving import run_all

NEW_TOKENS = 12


@dataclass(frozen=True)
class Imported:
    name: str
    model: WhisperForConditionalGeneration
    checkpoint: Checkpoint
    bundle: Bundle

    @property
    def features(self) -> np.ndarray:
        return random_features(self.model.config.num_mel_bins)

    @property
    def sounds(self) -> list[Audio]:
        return [Audio(window.tobytes(), NUM_POSITIONS) for window in self.features]

    @property
    def prompt(self) -> tuple[int, ...]:
        audio = self.bundle.manifest.audio
        assert audio is not None
        first = (FRENCH, TRANSCRIBE) if audio.languages else ()
        return (START, *first, NO_TIMESTAMPS)


@pytest.fixture(params=FAMILIES, scope="module")
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    folder = tmp_path_factory.mktemp("transcriber")
    model = save(request.param, folder / "theirs")
    checkpoint = read_model(folder / "theirs")
    assert checkpoint.notes == ()
    export_checkpoint(checkpoint, folder / "ours", Precision.FP32)
    return Imported(request.param, model, checkpoint, open_bundle(folder / "ours"))


def read_config(folder: Path) -> WhisperConfig:
    return config_of(read_model(folder))


def config_of(checkpoint: Checkpoint) -> WhisperConfig:
    assert isinstance(checkpoint.config, WhisperConfig)
    return checkpoint.config


@torch.inference_mode()
def test_log_probabilities_are_those_of_transformers(imported: Imported) -> None:
    random = np.random.default_rng(1)
    targets = [[START, *random.integers(0, VOCABULARY, NEW_TOKENS)] for _ in imported.features]
    actual = GraphRows(imported.bundle, imported.sounds).score(targets)
    features = torch.from_numpy(imported.features)
    logits = imported.model(features, decoder_input_ids=torch.tensor(targets)).logits
    assert np.abs(actual - logits.log_softmax(-1).numpy()).max() < 1e-4


@torch.inference_mode()
def test_the_encoder_is_that_of_transformers(imported: Imported) -> None:
    module: Any = load_module(imported.checkpoint)
    features = torch.from_numpy(imported.features)
    encoder = module.encoder
    x = encoder.before_layers(encoder.convolve(features))
    for layer in encoder.layers:
        x = layer(x, torch.ones(1, 1, 1, NUM_POSITIONS, dtype=torch.bool))
    expected = imported.model.model.encoder(features).last_hidden_state
    assert (encoder.norm(x) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("num_beams", [1, 4])
def test_texts_are_those_of_generate(imported: Imported, num_beams: int) -> None:
    ours, theirs = _our_texts(imported, num_beams), _their_texts(imported, num_beams)
    assert ours == theirs
    assert len({tuple(row) for row in ours}) > 3


def _our_texts(imported: Imported, num_beams: int) -> list[list[int]]:
    beam = BeamParams(num_beams=num_beams) if num_beams > 1 else None
    requests = [
        GenerationRequest(
            str(number),
            audio=sound,
            is_whole=True,
            prompt_ids=imported.prompt,
            beam=beam,
            max_new_tokens=NEW_TOKENS,
        )
        for number, sound in enumerate(imported.sounds)
    ]
    stories = run_all(Engine(imported.bundle, EngineConfig(slots=32, threads=1)), requests)
    finals = [stories[request.request_id].final for request in requests]
    return [[*final.best.tokens.ids] for final in finals if isinstance(final, FinishedEvent)]


def _their_texts(imported: Imported, num_beams: int) -> list[list[int]]:
    """Whisper's own `generate` cuts recordings into windows; this is the one of all models."""
    features, prompt = torch.from_numpy(imported.features), list(imported.prompt)
    rows = GenerationMixin.generate(
        imported.model,
        features,
        decoder_input_ids=torch.tensor([prompt] * len(features)),
        do_sample=False,
        num_beams=num_beams,
        max_new_tokens=NEW_TOKENS,
        max_length=None,
        suppress_tokens=SUPPRESSED,
        begin_suppress_tokens=SUPPRESSED_FIRST,
    )[:, len(prompt) :].tolist()
    return [row[: row.index(END)] if END in row else row for row in rows]


def test_the_bundle_says_how_to_read_sound_and_which_tokens_a_transcript_has(
    imported: Imported,
) -> None:
    manifest, audio = imported.bundle.manifest, imported.model.config
    languages = {"en": ENGLISH, "fr": FRENCH}
    is_english = imported.name == "english"
    several: dict[str, Any] = {
        "languages": languages,
        "transcribe": TRANSCRIBE,
        "translate": TRANSLATE,
    }
    assert manifest.audio == AudioSpec(
        sampling_rate=16000,
        num_mels=audio.num_mel_bins,
        num_frames=200,
        hop=160,
        fft_size=400,
        start=START,
        previous=PREVIOUS,
        no_speech=NO_SPEECH,
        no_timestamps=NO_TIMESTAMPS,
        first_timestamp=FIRST_TIMESTAMP,
        timestamp_step=0.02,
        max_initial_timestamp=1.0,
        **({} if is_english else several),
    )
    assert manifest.source_languages == (("en",) if is_english else ("en", "fr"))
    assert manifest.alignment_heads == (1, 3)
    assert manifest.logits_processors.suppress_tokens == tuple(SUPPRESSED)
    assert manifest.logits_processors.begin_suppress_tokens == tuple(SUPPRESSED_FIRST)
    assert (manifest.tokens.prompt_prefix, manifest.tokens.stop) == ((START,), (END,))


def test_int8_is_near(tmp_path: Path) -> None:
    save("multilingual", tmp_path / "theirs")
    checkpoint = read_model(tmp_path / "theirs")
    export_checkpoint(checkpoint, tmp_path / "ours", Precision.INT8)
    parity = TranslationVerifier(checkpoint, open_bundle(tmp_path / "ours")).compare(None, 0)
    assert parity.random_ids.mean < 0.1


def test_older_folders_say_it_all_in_one_file(tmp_path: Path) -> None:
    """Without tokens of times in the tokenizer, whose ids stay free, and with a repeated table."""
    save("multilingual", tmp_path)
    expected = read_model(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = [
        token for token in tokenizer["added_tokens"] if token["id"] < FIRST_TIMESTAMP
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    moved = {"suppress_tokens": SUPPRESSED, "begin_suppress_tokens": SUPPRESSED_FIRST}
    forced = [[1, ENGLISH], [2, TRANSCRIBE], [3, NO_TIMESTAMPS]]
    change(tmp_path / "config.json", forced_decoder_ids=forced, max_length=40, **moved)
    actual = read_model(tmp_path)
    expected_config = config_of(expected)
    audio = expected_config.audio.model_copy(update={"alignment_heads": ()})
    expected_config = expected_config.model_copy(update={"audio": audio})
    assert actual.config.model_dump() == expected_config.model_dump()
    assert (actual.conventions, actual.notes) == (expected.conventions, ())
    assert Tokenizer.from_str(actual.tokenizer).token_to_id("<|0.02|>") == FIRST_TIMESTAMP + 1


def test_a_tokenizer_of_two_files_is_the_same(tmp_path: Path) -> None:
    save("multilingual", tmp_path)
    expected = Tokenizer.from_str(read_model(tmp_path).tokenizer).get_vocab()
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text(json.dumps(tokenizer["model"]["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    (tmp_path / "added_tokens.json").write_text(json.dumps(special))
    assert Tokenizer.from_str(read_model(tmp_path).tokenizer).get_vocab() == expected


def test_an_output_of_its_own_is_used(tmp_path: Path) -> None:
    save("multilingual", tmp_path)
    assert read_config(tmp_path).tied_embeddings
    change_weights(tmp_path, proj_out__weight=np.ones((VOCABULARY, 32), np.float32))
    checkpoint = read_model(tmp_path)
    assert not config_of(checkpoint).tied_embeddings
    assert (checkpoint.weights["output.weight"] == 1).all()
    assert any("proj_out.weight is stored with other numbers" in note for note in checkpoint.notes)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("config", {"activation_function": "mish"}, "activation_function 'mish' is not supported"),
    (
        "config",
        {"architectures": ["WhisperForAudioClassification"]},
        "is none of ...ForConditionalGeneration",
    ),
    ("config", {"max_source_positions": 90}, "max_source_tokens 90 must be half of"),
    ("config", {"num_mel_bins": 40}, "feature_size 20 must be num_mel_bins 40"),
    ("config", {"vocab_size": 300}, "must be less than 300"),
    ("generation_config", {"alignment_heads": [[0, 4]]}, "must be pairs of a layer and one of"),
    ("generation_config", {"alignment_heads": [[2, 0]]}, "is no head of a decoder"),
    ("generation_config", {"no_timestamps_token_id": 3}, "must be 265, as in the tokenizer"),
    ("generation_config", {"guidance_scale": 2.0}, "guidance_scale 2.0 is not supported"),
    ("preprocessor_config", {"sampling_rate": 8000}, "sampling_rate 8000 is not supported"),
    ("preprocessor_config", {"chunk_length": 3}, "must be half of audio.num_frames 300"),
    ("preprocessor_config", {"dither": 0.1}, "dither 0.1 is not supported"),
    (
        "preprocessor_config",
        {"feature_extractor_type": "EncodecFeatureExtractor"},
        "feature_extractor_type 'EncodecFeatureExtractor' is not supported",
    ),
]


@pytest.mark.parametrize(("file", "values", "problem"), REFUSED, ids=str)
def test_what_would_compute_another_model_is_refused(
    file: str, values: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    save("multilingual", tmp_path)
    change(tmp_path / f"{file}.json", **values)
    problems = problems_of(tmp_path)
    assert any(problem in line for line in problems), problems


def test_a_tokenizer_without_the_tokens_of_transcripts_is_refused(tmp_path: Path) -> None:
    save("multilingual", tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    names = {"<|transcribe|>"}
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["content"] not in names]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert "the vocabulary has no token <|transcribe|>" in problems_of(tmp_path)


def test_hebrew_has_the_code_of_requests(tmp_path: Path) -> None:
    save("multilingual", tmp_path)
    change(tmp_path / "generation_config.json", lang_to_id=None)
    tokenizer = (tmp_path / "tokenizer.json").read_text().replace("<|fr|>", "<|iw|>")
    (tmp_path / "tokenizer.json").write_text(tokenizer)
    assert read_config(tmp_path).audio.languages == {"en": ENGLISH, "he": FRENCH}
