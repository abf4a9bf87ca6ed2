"""Tiny random checkpoints and bundles of every family, made in moments and without torch.

    bundle = open_bundle(tiny_bundle("transformer", tmp_path, Precision.INT8))

The builders themselves say which weights they want; each gets random values of a trained size.
"""

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from export.graph.model import Weights
from models.architectures.registry import ARCHITECTURES, config_class, graph_builder, parse_config
from models.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.configs.base import EncoderConfig
from serving.bundle.manifest import Precision
from tests.cache import copy_cached, export_cached

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")
TRANSLATION = {"max_source_tokens": 96, "max_target_tokens": 48}
SHRINKING = 8  # of default widths
MOST_LAYERS = 2


def shrink_defaults(architecture: str) -> dict[str, Any]:
    """Return tiny sizes of an architecture that CONFIGS does not name, by its default sizes."""
    kind = config_class(architecture)
    sizes: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if name == "context_length":
            sizes[name] = 64
        elif name in ("max_source_tokens", "max_target_tokens"):
            sizes[name] = 96 if name == "max_source_tokens" else 48
        elif not isinstance(field.default, int):
            continue
        elif name.endswith("_layers"):
            sizes[name] = min(field.default, MOST_LAYERS)
        elif name == "dim" or name.endswith(("_dim", "_model")):
            sizes[name] = max(4, field.default // SHRINKING)
    return sizes


CONFIGS: dict[str, dict[str, Any]] = {
    "transformer": TRANSLATION
    | {"d_model": 32, "num_heads": 4, "ffn_dim": 64, "encoder_layers": 2, "decoder_layers": 2},
    "transformer-ssru": TRANSLATION
    | {"d_model": 32, "num_heads": 4, "ffn_dim": 64, "encoder_layers": 2, "decoder_layers": 2},
    "cho": TRANSLATION | {"embedding_dim": 24, "hidden_dim": 32, "readout_dim": 24},
    "sutskever": TRANSLATION
    | {"embedding_dim": 24, "hidden_dim": 32, "readout_dim": 24, "num_layers": 2}
    | {"reversed_source": True},
    "bahdanau": TRANSLATION
    | {"embedding_dim": 24, "hidden_dim": 32, "attention_dim": 40, "readout_dim": 24},
    "convs2s": TRANSLATION
    | {"embedding_dim": 24, "hidden_dim": 20, "encoder_layers": 2, "decoder_layers": 2},
    "fconv": TRANSLATION
    | {"embedding_dim": 24, "readout_dim": 24}
    | {"encoder": [{"dim": 20}, {"dim": 28, "kernel_size": 1}]}
    | {"decoder": [{"dim": 20}, {"dim": 28, "kernel_size": 1, "attends": False}, {"dim": 28}]},
    "gpt2": {"d_model": 32, "num_layers": 2, "num_heads": 4, "ffn_dim": 48, "context_length": 64},
    "gpt-neox": {"d_model": 64, "num_layers": 2, "num_heads": 4, "ffn_dim": 50}
    | {"context_length": 64},
    "llama": {"d_model": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "ffn_dim": 48}
    | {"context_length": 64},
    "lstmn": TRANSLATION
    | {"embedding_dim": 24, "hidden_dim": 32, "attention_dim": 40, "readout_dim": 24},
    "rctm": TRANSLATION | {"embedding_dim": 20, "hidden_dim": 28, "readout_dim": 20},
    "nematus": TRANSLATION
    | {"embedding_dim": 24, "hidden_dim": 32, "readout_dim": 24, "encoder_layers": 2}
    | {"decoder_layers": 2, "decoder_transitions": 3, "skip": True, "layer_norm": "cell"},
    "key-value-lm": {"embedding_dim": 24, "hidden_dim": 36, "context_length": 64, "window": 7},
    "mamba": {"d_model": 32, "num_layers": 2, "inner_dim": 72, "state_dim": 10, "step_rank": 5},
    "mamba2": {"d_model": 32, "num_layers": 2, "num_heads": 6, "head_dim": 12, "state_dim": 10}
    | {"num_groups": 2, "context_length": 64},
    "ngram-lm": {"embedding_dim": 24, "hidden_dim": 36, "context_length": 64},
    "recurrent-lm": {"embedding_dim": 24, "hidden_dim": 36, "context_length": 64}
    | {"attention": {"dim": 20}},
    "luong": TRANSLATION | {"embedding_dim": 24, "hidden_dim": 32, "readout_dim": 24},
    "rwkv7": {"d_model": 24, "num_layers": 2, "head_dim": 12, "ffn_dim": 50, "decay_rank": 5}
    | {"rate_rank": 6, "value_rank": 3, "gate_rank": 7},
    "rotary-encoder": {"d_model": 32, "num_heads": 4, "ffn_dim": 50, "num_layers": 3}
    | {"max_source_tokens": 96, "num_types": 2, "window": {"size": 5, "layers": [1, 2]}},
    "rotary-encoder-decoder": TRANSLATION
    | {"d_model": 48, "num_heads": 3, "num_kv_heads": 1, "ffn_dim": 50, "logit_cap": 3.0}
    | {"encoder_layers": 2, "decoder_layers": 3, "window": {"size": 5, "layers": [0, 2]}}
    | {
        "encoder": {
            "d_model": 40,
            "num_heads": 2,
            "ffn_dim": 70,
            "window": {"size": 4, "layers": [1]},
        }
    }
    | {"attention_cap": 2.0},
    "self-attentive": {"embedding_dim": 24, "hidden_dim": 17, "attention_dim": 20}
    | {"num_hops": 3, "max_source_tokens": 96},
    "transformer-encoder": {"d_model": 32, "num_heads": 4, "ffn_dim": 50, "num_layers": 2}
    | {"max_source_tokens": 96, "num_types": 2},
    "vision-transformer": {"d_model": 32, "num_heads": 4, "ffn_dim": 64, "encoder_layers": 2}
    | {"decoder_layers": 2, "max_source_tokens": 26, "max_target_tokens": 48}
    | {"vision": {"image_size": 30, "patch_size": 6, "d_model": 40, "num_heads": 4, "ffn_dim": 50}},
    "whisper": {"d_model": 32, "num_heads": 4, "ffn_dim": 64, "encoder_layers": 2}
    | {"decoder_layers": 2, "max_source_tokens": 100, "max_target_tokens": 64}
    | {"pad_id": 256, "bos_id": 257, "eos_id": 256, "source_languages": ["en", "fr"]}
    | {
        "audio": {
            "num_mels": 20,
            "num_frames": 200,  # of a window of 2 s
            "languages": {"en": 258, "fr": 259},
            "translate": 260,
            "transcribe": 261,
            "previous": 263,
            "no_speech": 264,
            "no_timestamps": 265,
            "first_timestamp": 266,
            "alignment_heads": [1, 6],
        }
    },
}
CONFIGS |= {name: shrink_defaults(name) for name in ARCHITECTURES if name not in CONFIGS}

ENCODERS = sorted(name for name in ARCHITECTURES if issubclass(config_class(name), EncoderConfig))
PICTURE_READER, SOUND_READER = "vision-transformer", "whisper"
DECODERS = sorted(ARCHITECTURES.keys() - ENCODERS - {PICTURE_READER, SOUND_READER})  # read words

LIKE_GEMMA: dict[str, Any] = {  # and like Qwen: options of llama
    "num_layers": 3,
    "head_dim": 32,
    "activation": "gelu_tanh",
    "window": 5,
    "imported": {
        "attention_bias": "qkv",
        "qk_norm": True,
        "sandwich_norms": True,
        "embedding_scale": 8.0,
        "attention_cap": 2.0,
        "logit_cap": 3.0,
        "layers_without_window": [1],
        "rotary_frequencies": [0.9, 0.7, 0.5, 0.3, 0.05, 0.01, 1e-3, 1e-4],
        "rotary_magnitude": 1.2,
        "window_frequencies": [2 / (2 + i) for i in range(16)],
    },
}
LIKE_OLMO: dict[str, Any] = {  # and like Arcee: options of llama
    "head_dim": 12,
    "activation": "relu2",
    "imported": {
        "gated_ffn": False,
        "qk_norm": True,
        "qk_norm_spans_heads": True,
        "sandwich_norms": True,
        "input_norms": False,
    },
}
LIKE_DEEPSEEK: dict[str, Any] = {  # options of llama
    "num_kv_heads": 4,
    "head_dim": 20,
    "imported": {
        "rotary_frequencies": [0.9, 0.3, 0.05],
        "rotary_magnitude": 1.2,
        "latent_attention": {"size": 18, "query_size": 22, "value_size": 12},
        "experts": {"num_experts": 6, "num_used": 3, "ffn_dim": 24, "shared_ffn_dim": 40}
        | {"shared_gate": False, "weighting": "sigmoid", "selection_bias": True, "scale": 1.7}
        | {"groups": {"number": 3, "num_used": 2, "num_summed": 2}},
        "layers_without_experts": [0],
    },
}
LIKE_GPT_OSS: dict[str, Any] = {  # options of llama
    "window": 5,
    "imported": {
        "attention_bias": "all",
        "attention_sinks": True,
        "layers_without_window": [1],
        "experts": {"num_experts": 5, "num_used": 2, "ffn_dim": 24, "bias": True}
        | {"limits": {"gate": 0.5, "up": [-0.2, 0.6]}},
    },
}
LIKE_HUNYUAN: dict[str, Any] = {  # and like Ministral 3: options of llama
    "head_dim": 20,
    "imported": {
        "query_growth": {"rate": 0.5, "length": 4},
        "qk_norm": True,
        "qk_norm_after_rotation": True,
        "rotary_frequencies": [0.9, 0.3, 0.05, 0.01],
        "rotary_magnitude": 1.2,
    },
}
LIKE_PHI: dict[str, Any] = {  # options of gpt-neox
    "num_kv_heads": 2,
    "head_dim": 32,
    "tied_embeddings": False,
    "activation": "gelu_tanh",
    "imported": {
        "rotary_frequencies": [1.0, 0.5, 0.2, 0.1, 0.01, 1e-3, 1e-4, 0.0],
        "output_bias": True,
    },
}
LIKE_BLOOM: dict[str, Any] = {"imported": {"position_biases": True, "embedding_norm": True}}
LIKE_COMMAND: dict[str, Any] = {  # and like OLMo and StableLM: options of gpt-neox
    "num_kv_heads": 2,
    "num_layers": 3,
    "head_dim": 20,
    "activation": "swish",
    "window": 5,
    "imported": {
        "attention_bias": False,
        "ffn_bias": False,
        "gated_ffn": True,
        "qkv_limit": 1.0,
        "qk_norm": True,
        "layers_without_window": [1],
        "layers_without_rotation": [1],
    },
}


class RandomWeights(Weights):
    """Gives every weight that is asked for, and keeps what it gave."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__({})
        self.arrays: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(seed)

    def take(self, name: str, *shape: int) -> np.ndarray:
        if name not in self.arrays:
            self.arrays[name] = self._draw(name, shape)
        return self.arrays[name]

    def _draw(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        values = self._random.standard_normal(shape) / np.sqrt(shape[-1])
        if len(shape) == 1:
            values = self._random.standard_normal(shape) * 0.1
        if "norm" in name and name.endswith("weight"):
            values += 1
        return values.astype(np.float32)


def byte_tokenizer() -> Tokenizer:
    """Byte-level BPE without merges: ids 3..258 are the bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def speech_tokenizer() -> Tokenizer:
    """Byte-level BPE without merges, with the tokens of Whisper for English and French, and those
    of times from 0 to 2 s: ids 0..255 are the bytes.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names: tuple[str, ...] = (
        "endoftext",
        "startoftranscript",
        "en",
        "fr",
        "translate",
        "transcribe",
    )
    names += ("startoflm", "startofprev", "nospeech", "notimestamps")
    tokenizer.add_special_tokens([f"<|{name}|>" for name in names])
    tokenizer.add_tokens([AddedToken(f"<|{i / 50:.2f}|>", normalized=False) for i in range(101)])
    return tokenizer


def tiny_checkpoint(architecture: str, folder: Path, seed: int = 0, **changes: Any) -> Checkpoint:
    """Return a random checkpoint. ``changes`` override its tiny configuration."""

    def write(output: Path) -> None:
        tokenizer = speech_tokenizer() if architecture == SOUND_READER else byte_tokenizer()
        sizes = {"vocab_size": tokenizer.get_vocab_size(), **CONFIGS[architecture], **changes}
        config = parse_config({"architecture": architecture, **sizes})
        weights = RandomWeights(seed)
        graph_builder(architecture)(config, weights, Precision.FP32)
        save_checkpoint(output, config, weights.arrays, tokenizer.to_str())

    copy_cached((architecture, seed, changes), folder, write)
    return load_checkpoint(folder)


def tiny_bundle(
    architecture: str, folder: Path, precision: Precision, seed: int = 0, **changes: Any
) -> Path:
    """Return a bundle of a random checkpoint: ``folder / "<architecture>-<precision>"``.

    The checkpoint is in ``folder / architecture``.
    """
    checkpoint = tiny_checkpoint(architecture, folder / architecture, seed, **changes)
    bundle = folder / f"{architecture}-{precision}"

    export_cached(checkpoint, bundle, precision, name=architecture)
    return bundle
