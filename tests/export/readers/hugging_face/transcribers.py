"""Small random models of `transformers` that write what is said, saved as folders.

model = save("multilingual", tmp_path / "theirs")
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

from tests.tiny import speech_tokenizer

VOCABULARY = 367
END, START, ENGLISH, FRENCH, TRANSLATE, TRANSCRIBE = 256, 257, 258, 259, 260, 261
PREVIOUS, NO_SPEECH, NO_TIMESTAMPS, FIRST_TIMESTAMP = 263, 264, 265, 266
SECONDS, NUM_POSITIONS = 2, 100  # of a window
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": 20,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_source_positions": NUM_POSITIONS,
    "max_target_positions": 40,
}
SPECIAL = {
    "bos_token_id": END,
    "eos_token_id": END,
    "pad_token_id": END,
    "decoder_start_token_id": START,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "multilingual": {},
    "english": {},
    "turbo": {"num_mel_bins": 128, "encoder_layers": 4, "decoder_layers": 1},
    "distil of other sizes": {
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 56,
        "d_model": 36,
    },
    "untied": {"tie_word_embeddings": False},
}
SUPPRESSED, SUPPRESSED_FIRST = [7, 9, START, TRANSLATE], [30, END]
GENERATION: dict[str, Any] = {
    "alignment_heads": [[0, 1], [0, 3]],
    "begin_suppress_tokens": SUPPRESSED_FIRST,
    "forced_decoder_ids": [[1, None], [2, TRANSCRIBE]],
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": ENGLISH, "<|fr|>": FRENCH},
    "max_initial_timestamp_index": 50,
    "max_length": 40,
    "no_timestamps_token_id": NO_TIMESTAMPS,
    "prev_sot_token_id": PREVIOUS,
    "return_timestamps": False,
    "suppress_tokens": SUPPRESSED,
    "task_to_id": {"transcribe": TRANSCRIBE, "translate": TRANSLATE},
}
OF_ENGLISH = {"lang_to_id": None, "task_to_id": None, "is_multilingual": False}


def save(name: str, folder: Path) -> WhisperForConditionalGeneration:
    """Write a model whose every weight is random, and its tokenizer and processor."""
    torch.manual_seed(0)
    options: dict[str, Any] = {**SIZES, **FAMILIES[name], **SPECIAL}
    config = WhisperConfig(**options)
    model = WhisperForConditionalGeneration(config).eval()
    for parameter_name, parameter in model.named_parameters():
        _draw(parameter_name, parameter)
    model.save_pretrained(folder)
    generation = SPECIAL | GENERATION | (OF_ENGLISH if name == "english" else {})
    written = {key: value for key, value in generation.items() if value is not None}
    (folder / "generation_config.json").write_text(json.dumps(written))
    speech_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    WhisperFeatureExtractor(feature_size=config.num_mel_bins, chunk_length=SECONDS).save_pretrained(
        folder
    )
    return model


def _draw(name: str, parameter: torch.nn.Parameter) -> None:
    is_scale = "norm" in name and name.endswith("weight")
    size = 4.0 if "encoder_attn" in name else 1.0
    size = 0.3 if parameter.dim() == 1 else size * parameter[0].numel() ** -0.5
    if "embed_tokens" in name:
        size = 0.1  # else a token makes itself the next one
    if "decoder.embed_positions" in name:
        size = 1.0
    torch.nn.init.normal_(parameter, mean=float(is_scale), std=size)


def random_features(num_mels: int, count: int = 8) -> np.ndarray:
    """Return spectrograms f32 [count, mels, frames] with loud and quiet parts."""
    random = np.random.default_rng(0)
    areas = random.uniform(-0.8, 1.4, (count, 4, 10)).astype(np.float32)
    areas = areas.repeat(-(-num_mels // 4), 1)[:, :num_mels].repeat(2 * NUM_POSITIONS // 10, 2)
    noise = random.standard_normal(areas.shape).astype(np.float32)
    return areas + 0.1 * noise
