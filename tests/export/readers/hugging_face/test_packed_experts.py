"""Experts of gpt-oss in MXFP4 are what `transformers` makes of them."""

from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedModel
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.hugging_face.families import read_checkpoint
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.readers.hugging_face.changing import change, change_weights, problems_of
from tests.export.readers.hugging_face.language_models import (
    BOS,
    log_probabilities,
    random_model,
    save,
)

PACKING = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}


def pack_experts(model: PreTrainedModel, folder: Path) -> None:
    """Put random blocks into the saved folder, and what they mean into the model."""
    random, path = np.random.default_rng(0), folder / "model.safetensors"
    weights, parameters = load_file(path), dict(model.named_parameters())
    for name in [name for name in weights if name.endswith("_proj") and "experts" in name]:
        experts, num_in, num_out = weights.pop(name).shape
        shape = (experts, num_out, num_in // 32)
        blocks = random.integers(0, 256, (*shape, 16)).astype(np.uint8)
        scales = random.integers(120, 126, shape).astype(np.uint8)
        weights |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        tensors = torch.from_numpy(blocks), torch.from_numpy(scales)
        parameters[name].data = convert_moe_packed_tensors(*tensors, dtype=torch.float32)
    save_file(weights, path, metadata={"format": "pt"})
    change(folder / "config.json", quantization_config=PACKING)


def test_log_probabilities_are_theirs(tmp_path: Path) -> None:
    model, folder = random_model("gpt_oss", intermediate_size=32), tmp_path / "theirs"
    pack_experts(model, save(model, folder))
    checkpoint = read_checkpoint(folder)
    assert checkpoint.bits == 8 and checkpoint.notes == ()
    export_checkpoint(checkpoint, tmp_path / "ours", Precision.FP32)
    ids = [BOS, *range(50, 60)]
    [found] = GraphRows(open_bundle(tmp_path / "ours"), [[]]).read([ids])
    assert np.abs(found - log_probabilities(model, ids)[-1]).max() < 1e-4

    name = "model.layers.1.mlp.experts.down_proj"
    scales = f"{name}_scales".replace(".", "__")
    change_weights(folder, **{scales: np.zeros((6, 64), np.uint8)})
    problems = problems_of(folder)
    assert f"{name}.5 holds U8, which is not supported" in problems
    assert f"{name}_scales is not expected" in problems
