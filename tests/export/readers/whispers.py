"""Random Whispers of transformers, and files of openai/whisper and whisper.cpp made of them."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf.quants import quantize
from transformers import WhisperConfig, WhisperForConditionalGeneration

MELS, FRAMES = 20, 200
END, START, ENGLISH, TRANSCRIBE, NO_TIMESTAMPS = 256, 257, 258, 261, 265
VOCABULARY = 367  # bytes, special tokens for two languages, and times up to 2 s
FILE_TYPES = {  # numbers of ggml's enum ggml_ftype
    Kind.F32: 0,
    Kind.F16: 1,
    Kind.Q4_0: 2,
    Kind.Q8_0: 7,
    Kind.Q5_0: 8,
    Kind.Q5_1: 9,
}
PARTS = {  # of names, in this order: what transformers has in place of what openai/whisper has
    "embed_positions.weight": "positional_embedding",
    "embed_tokens": "token_embedding",
    "encoder_attn_layer_norm": "cross_attn_ln",
    "encoder_attn": "cross_attn",
    "self_attn_layer_norm": "attn_ln",
    "self_attn": "attn",
    "final_layer_norm": "mlp_ln",
    "encoder.layer_norm": "encoder.ln_post",
    "decoder.layer_norm": "decoder.ln",
    "layers": "blocks",
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "out_proj": "out",
    "fc1": "mlp.0",
    "fc2": "mlp.2",
}


def random_whisper(vocab_size: int = VOCABULARY) -> WhisperForConditionalGeneration:
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=vocab_size,
        num_mel_bins=MELS,
        max_source_positions=FRAMES // 2,
        max_target_positions=64,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        init_std=0.2,
        pad_token_id=END,
        bos_token_id=END,
        eos_token_id=END,
        decoder_start_token_id=START,
    )
    return WhisperForConditionalGeneration(config).eval()


def openai_sizes(model: WhisperForConditionalGeneration) -> dict[str, int]:
    config = model.config
    return {
        "n_mels": config.num_mel_bins,
        "n_vocab": config.vocab_size,
        "n_audio_ctx": config.max_source_positions,
        "n_audio_state": config.d_model,
        "n_audio_head": config.encoder_attention_heads,
        "n_audio_layer": config.encoder_layers,
        "n_text_ctx": config.max_target_positions,
        "n_text_state": config.d_model,
        "n_text_head": config.decoder_attention_heads,
        "n_text_layer": config.decoder_layers,
    }


def openai_weights(model: WhisperForConditionalGeneration) -> dict[str, np.ndarray]:
    """The weights by the names that openai/whisper has."""
    weights = {}
    for name, tensor in model.model.state_dict().items():
        for theirs, openais in PARTS.items():
            name = name.replace(theirs, openais)
        weights[name] = tensor.detach().numpy()
    return weights


def write_ggml(
    path: Path,
    sizes: Mapping[str, int],
    weights: Mapping[str, np.ndarray],
    words: Sequence[bytes],
    kind: Kind = Kind.F16,
) -> Path:
    """As whisper.cpp's convert-pt-to-ggml.py writes it, quantised as its quantize.cpp does."""
    order = ["vocab", "audio_ctx", "audio_state", "audio_head", "audio_layer", "text_ctx"]
    order += ["text_state", "text_head", "text_layer", "mels"]
    version = 0 if kind in (Kind.F32, Kind.F16) else 2000
    with path.open("wb") as file:
        file.write(struct.pack("i", 0x67676D6C))
        file.write(struct.pack("10i", *(sizes[f"n_{name}"] for name in order)))
        file.write(struct.pack("i", version + FILE_TYPES[kind]))
        file.write(struct.pack("2i", sizes["n_mels"], 201))
        file.write(np.zeros((sizes["n_mels"], 201), np.float32).tobytes())
        file.write(struct.pack("i", len(words)))
        for word in words:
            file.write(struct.pack("i", len(word)) + word)
        for name, weight in weights.items():
            is_bias_of_convolution = name.startswith("encoder.conv") and name.endswith(".bias")
            values = weight.reshape(-1, 1) if is_bias_of_convolution else weight
            is_float = values.ndim < 2 or "positional" in name or is_bias_of_convolution
            used = Kind.F32 if is_float or kind is Kind.F32 else Kind.F16
            if used is Kind.F16 and values.ndim == 2:
                used = kind
            data = quantize(np.ascontiguousarray(values, np.float32), used)
            encoded = name.encode()
            file.write(struct.pack("3i", values.ndim, len(encoded), used))
            file.write(struct.pack(f"{values.ndim}i", *values.shape[::-1]))
            file.write(encoded + data.tobytes())
    return path
