"""Keys that other models have are put into the files of each family: either the model computes what
`transformers` does with them, or it is refused, or a note names the key.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from export.readers.hugging_face.families import read_checkpoint
from models.checkpoint import CheckpointError
from models.decoding import teacher_forced_log_probabilities
from models.loading import load_module
from tests.export.readers.hugging_face.changing import change
from tests.export.readers.hugging_face.language_models import (
    BOS,
    FAMILIES,
    log_probabilities,
    random_model,
    save,
)
from tests.grid import in_turns

IDS = [BOS, *range(40, 70)]
TOLERANCE = 1e-3  # nats
NUM_PARTS = 4  # that the keys are divided into
OTHERS: dict[str, Any] = {
    "activation": "relu",
    "activation_function": "relu",
    "alibi": True,
    "attention_bias": True,
    "attention_multiplier": 0.5,
    "attention_types": [[["local", "global", "global"], 1]],
    "attn_logit_softcapping": 2.0,
    "bias": True,
    "clip_qkv": 0.5,
    "do_layer_norm_before": False,
    "embedding_multiplier": 2.0,
    "enable_bias": False,
    "final_logit_softcapping": 3.0,
    "head_dim": 20,
    "hidden_act": "relu",
    "hidden_activation": "relu",
    "is_causal": False,
    "layer_norm_elementwise_affine": False,
    "layer_norm_eps": 0.3,
    "layer_norm_epsilon": 0.3,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    "logit_scale": 2.0,
    "logits_scaling": 2.0,
    "max_window_layers": 1,
    "mlp_bias": True,
    "multi_query": False,
    "new_decoder_architecture": True,
    "no_rope_layers": [1, 0, 1],
    "norm_epsilon": 0.3,
    "num_ln_in_parallel_attn": 2,
    "parallel_attn": False,
    "partial_rotary_factor": 0.5,
    "qk_layernorm": True,
    "query_pre_attn_scalar": 7,
    "residual_multiplier": 0.5,
    "rms_norm_eps": 0.3,
    "rope_local_base_freq": 44.0,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    "rope_theta": 77.0,
    "rotary_dim": 4,
    "rotary_emb_base": 55,
    "rotary_pct": 0.5,
    "scale_attn_weights": False,
    "scale_embedding": True,
    "slow_but_exact": True,
    "sliding_window": 3,
    "sliding_window_pattern": 2,
    "tie_word_embeddings": True,
    "use_bias": False,
    "use_bidirectional_attention": True,
    "use_parallel_residual": False,
    "use_qk_norm": True,
    "use_qkv_bias": True,
    "use_sliding_window": True,
    "window_size": 3,
    "word_embed_proj_dim": 32,
}


@pytest.mark.parametrize(("name", "part"), in_turns(FAMILIES, range(NUM_PARTS)))
def test_no_key_changes_a_model_silently(name: str, part: int, tmp_path: Path) -> None:
    save(random_model(name), tmp_path)
    before = (tmp_path / "config.json").read_text()
    silent = {}
    for key, value in list(OTHERS.items())[part::NUM_PARTS]:
        (tmp_path / "config.json").write_text(before)
        change(tmp_path / "config.json", **{key: value})
        error = silent_error(tmp_path, key)
        if error > TOLERANCE:
            silent[key] = error
    assert silent == {}


def silent_error(folder: Path, key: str) -> float:
    """Return how far it is from theirs; 0 where it is refused, or the key is named, and where
    `transformers` cannot compute it either.
    """
    try:
        checkpoint = read_checkpoint(folder)
    except CheckpointError:
        return 0.0
    if any(f" {name}" in note for note in checkpoint.notes for name in (f"{key} = ", f"{key}.")):
        return 0.0
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
        expected = log_probabilities(model, IDS)
    except Exception:  # of any kind: a file that makes no sense to it
        return 0.0
    found = teacher_forced_log_probabilities(load_module(checkpoint), [], IDS).numpy()
    return float(np.abs(found - expected).max())
