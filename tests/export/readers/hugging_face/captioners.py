"""Small random models of `transformers` that write about pictures, saved as folders.

model = save("captioning", tmp_path / "captioning")
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DeiTConfig,
    GPT2Config,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)

VOCABULARY = 120
NUM_PICTURES = 20
SIDE = 30  # of a picture that an encoder reads
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": SIDE,
    "patch_size": 6,
}
GPT2 = GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=40)
SMALL_GPT2 = GPT2Config(vocab_size=VOCABULARY, n_embd=24, n_layer=2, n_head=2, n_positions=40)
TROCR: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 40,
}
SINUSOIDS: dict[str, Any] = {"use_learned_position_embeddings": False, "scale_embedding": True}
SINUSOIDS |= {"activation_function": "relu", "layernorm_embedding": False}
FAMILIES: dict[str, tuple[Any, Any]] = {
    "captioning": (ViTConfig(**VISION), GPT2),
    "captioning of unequal sizes": (ViTConfig(**VISION | {"qkv_bias": False}), SMALL_GPT2),
    "captioning by deit": (DeiTConfig(**VISION), GPT2),
    "trocr": (
        ViTConfig(**VISION | {"qkv_bias": False}),
        TrOCRConfig(**TROCR, cross_attention_hidden_size=32, tie_word_embeddings=False),
    ),
    "trocr with sinusoids": (DeiTConfig(**VISION), TrOCRConfig(**TROCR, **SINUSOIDS)),
}
# What published configurations, of transformers 4.12 to 4.29, say of each side.
OLDER_SIDE: dict[str, Any] = (
    dict.fromkeys(("architectures", "bad_words_ids", "begin_suppress_tokens", "bos_token_id"))
    | dict.fromkeys(("decoder_start_token_id", "eos_token_id", "finetuning_task", "pad_token_id"))
    | dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "prefix", "problem_type"))
    | dict.fromkeys(("sep_token_id", "suppress_tokens", "task_specific_params", "torch_dtype"))
    | dict.fromkeys(("do_sample", "early_stopping", "remove_invalid_values", "torchscript"), False)
    | dict.fromkeys(("tie_encoder_decoder", "tf_legacy_loss", "use_bfloat16"), False)
    | dict.fromkeys(("chunk_size_feed_forward", "diversity_penalty", "min_length"), 0)
    | dict.fromkeys(("encoder_no_repeat_ngram_size", "no_repeat_ngram_size"), 0)
    | dict.fromkeys(("num_beam_groups", "num_beams", "num_return_sequences"), 1)
    | dict.fromkeys(("length_penalty", "repetition_penalty", "temperature", "top_p"), 1.0)
    | {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "max_length": 20, "top_k": 50}
    | {"pruned_heads": {}, "return_dict": True, "tie_word_embeddings": True, "typical_p": 1.0}
)
PROCESSOR: dict[str, Any] = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": SIDE, "width": SIDE},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.5, 0.3, 0.2],
}


def model_of(name: str) -> VisionEncoderDecoderModel:
    """Every weight random, of a size that makes the picture count."""
    vision, text = FAMILIES[name]
    special = {"decoder_start_token_id": 2, "pad_token_id": 1, "eos_token_id": 2}
    for config in (text,):
        config.bos_token_id, config.eos_token_id, config.pad_token_id = 0, 2, 1
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text, **special)
    torch.manual_seed(0)
    model = VisionEncoderDecoderModel(config).eval()
    for name, parameter in model.named_parameters():
        _draw(name, parameter)
    with torch.no_grad():
        model.get_output_embeddings().weight[2] *= 2.5
    for option, value in {**special, "forced_eos_token_id": None}.items():
        setattr(model.generation_config, option, value)
    return model


def _draw(name: str, parameter: torch.nn.Parameter) -> None:
    is_scale = ("norm" in name or "ln_" in name) and name.endswith("weight")
    size = 4.0 if "crossattention" in name or "encoder_attn" in name else 1.0
    size = 0.3 if parameter.dim() == 1 else size * parameter[0].numel() ** -0.5
    if "wte" in name or "embed_tokens" in name:
        size = 0.15
    torch.nn.init.normal_(parameter, mean=float(is_scale), std=size)


def save(name: str, folder: Path, **processor: Any) -> VisionEncoderDecoderModel:
    """Write the model and a tokenizer of words `w4`, `w5` ... whose number is their id."""
    model = model_of(name)
    model.save_pretrained(folder)
    names = {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>"}
    vocab = {names.get(i, f"w{i}"): i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocab, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([*names.values()])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR | processor))
    return model


def random_pixels(count: int = NUM_PICTURES, side: int = SIDE) -> np.ndarray:
    """Return levels [count, side, side, 3] of pictures with light and dark parts."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (count, 3, 3, 3))
    fine = np.kron(coarse, np.ones((1, -(-side // 3), -(-side // 3), 1)))[:, :side, :side]
    return np.clip(fine + random.integers(-20, 21, fine.shape), 0, 255).astype(np.uint8)
