"""LoRA adapters that are merged when they are read, beside models whose layers add what the
adapter computes to their outputs.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from export.cli import export
from export.readers.reading import read_model
from models.checkpoint import Checkpoint, CheckpointError
from models.decoding import teacher_forced_log_probabilities
from models.loading import load_module
from tests.export.readers.hugging_face import captioners, translators
from tests.export.readers.hugging_face.language_models import (
    BOS,
    log_probabilities,
    prompts,
    random_model,
    save,
)

Tensors = dict[str, torch.Tensor]
RANK, ALPHA = 4, 6
TOLERANCE = 1e-4  # nats


def factors(model: nn.Module, *ends: str, rank: int = RANK) -> Tensors:
    """Return A and B of the modules whose names end so."""
    found: Tensors = {}
    for name, module in model.named_modules():
        if name.endswith(ends):
            sizes = reversed(module.weight.shape) if hasattr(module, "nf") else module.weight.shape
            num_outputs, num_inputs = sizes
            found[f"{name}.lora_A.weight"] = 0.3 * torch.randn(rank, num_inputs)
            found[f"{name}.lora_B.weight"] = 0.3 * torch.randn(num_outputs, rank)
    assert found
    return found


def adapt(model: nn.Module, tensors: Tensors, scale: float = ALPHA / RANK) -> None:
    """Add the product to the outputs of the model's own layers."""
    for name, down in tensors.items():
        if name.endswith("lora_A.weight"):
            up = tensors[name.replace("lora_A", "lora_B")]
            module = model.get_submodule(name.removesuffix(".lora_A.weight"))

            def added(_: Any, given: Any, out: Any, down: Any = down, up: Any = up) -> Any:
                return out + scale * (given[0] @ down.T @ up.T)

            module.register_forward_hook(added)


def write(folder: Path, tensors: Tensors, **options: Any) -> Path:
    """Write an adapter as peft does; None leaves an option away."""
    folder.mkdir(exist_ok=True)
    known = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", **options}
    known = {name: value for name, value in known.items() if value is not None}
    (folder / "adapter_config.json").write_text(json.dumps(known))
    named = {f"base_model.model.{name}": each.contiguous() for name, each in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors")
    return folder


def largest_error(model: PreTrainedModel, checkpoint: Checkpoint) -> float:
    module = load_module(checkpoint)
    rows = [[BOS, *prompt] for prompt in prompts(4)]
    found = [teacher_forced_log_probabilities(module, [], ids).numpy() for ids in rows]
    expected = [log_probabilities(model, ids) for ids in rows]
    return max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("smollm2", ("q_proj", "k_proj", "o_proj", "gate_proj", "down_proj")),
        ("gpt2", ("c_attn", "c_proj", "c_fc")),  # [in, out], and side by side
        ("gpt_neox", ("query_key_value", "dense_4h_to_h", "embed_out")),  # head by head
        ("phi3", ("qkv_proj", "gate_up_proj")),
        ("gemma2", ("q_proj", "v_proj")),  # scaled by what its file says
        ("gemma3 that reads pictures", ("o_proj", "up_proj")),
    ],
)
def test_log_probabilities_are_those_of_the_adapted_model(
    name: str, modules: tuple[str, ...], tmp_path: Path
) -> None:
    model = random_model(name)
    base, tensors = save(model, tmp_path / "base"), factors(model, *modules)
    plain = largest_error(model, read_model(base))
    adapt(model, tensors)
    found = read_model(base, adapters=[write(tmp_path / "adapter", tensors)])
    assert plain < TOLERANCE and largest_error(model, read_model(base)) > 1
    assert largest_error(model, found) < TOLERANCE
    assert "- Merged adapter: `adapter` (LoRA of rank 4)" in found.files["README.md"].decode()
    assert not [note for note in found.notes if "adapter" in note]


def test_several_add_up_each_with_its_own_scales(tmp_path: Path) -> None:
    model = random_model("smollm2")
    base = save(model, tmp_path / "base")
    first, second = factors(model, "q_proj", "1.mlp.up_proj"), factors(model, "q_proj", rank=9)
    patterns = {"rank_pattern": {"q_proj": RANK}, "alpha_pattern": {r"layers\.\d+\.mlp.*": 10}}
    one = write(tmp_path / "one", first, **patterns | {"r": 4})
    two = write(tmp_path / "two", second, r=9, use_rslora=True)
    adapt(model, {name: each for name, each in first.items() if "q_proj" in name})
    adapt(model, {name: each for name, each in first.items() if "up_proj" in name}, 10 / RANK)
    adapt(model, second, ALPHA / 3)
    assert largest_error(model, read_model(base, adapters=[one, two])) < TOLERANCE


def test_dora_scales_each_row(tmp_path: Path) -> None:
    model = random_model("qwen3")
    base, tensors = save(model, tmp_path / "base"), factors(model, "v_proj")
    for name, down in list(tensors.items()):
        if "lora_A" in name:
            layer = model.get_submodule(name.removesuffix(".lora_A.weight"))
            size = torch.rand(len(layer.weight)) + 0.5
            whole = layer.weight + ALPHA / RANK * tensors[name.replace("_A", "_B")] @ down
            layer.weight.data = size[:, None] * whole / whole.norm(dim=1, keepdim=True)
            tensors[name.replace("lora_A.weight", "lora_magnitude_vector")] = size
    adapter = write(tmp_path / "adapter", tensors, use_dora=True)
    found = read_model(base, adapters=[adapter])
    assert largest_error(model, found) < TOLERANCE
    assert "DoRA of rank 4" in found.files["README.md"].decode()


@pytest.mark.parametrize("end", ["embed_tokens", "lm_head"])
def test_a_shared_table_is_changed_where_the_adapter_says(end: str, tmp_path: Path) -> None:
    """As peft does: the other one of both stays what it was."""
    model = random_model("smollm2")
    base = save(model, tmp_path / "base")
    name = "lm_head" if end == "lm_head" else "model.embed_tokens"
    table = nn.Parameter(model.lm_head.weight + torch.randn(267, 64) / 4)
    model.get_submodule(name).weight = table
    tensors = {f"{name}.weight": table.detach(), **factors(model, "q_proj")}
    adapt(model, tensors)
    adapter = write(tmp_path / "adapter", tensors, modules_to_save=[end])
    assert largest_error(model, read_model(base, adapters=[adapter])) < TOLERANCE


def test_rows_of_a_table_are_added_to(tmp_path: Path) -> None:
    model = random_model("llama")
    base = save(model, tmp_path / "base")
    down, up = torch.randn(RANK, 267), torch.randn(64, RANK) / 8
    name = "model.embed_tokens"
    tensors = {f"{name}.base_layer.weight": model.model.embed_tokens.weight.detach().clone()}
    tensors |= {f"{name}.lora_embedding_A": down, f"{name}.lora_embedding_B": up}
    model.model.embed_tokens.weight.data += ALPHA / RANK * (up @ down).T
    found = read_model(base, adapters=[write(tmp_path / "adapter", tensors)])
    assert largest_error(model, found) < TOLERANCE


def test_names_of_models_that_read_pictures(tmp_path: Path) -> None:
    """They are as old as the folder's own; patterns count for the names in the adapter."""
    model = random_model("gemma3 that reads pictures")
    base, tensors = save(model, tmp_path / "base"), factors(model, "o_proj", "2.mlp.up_proj")
    adapt(model, {name: each for name, each in tensors.items() if "o_proj" in name})
    adapt(model, {name: each for name, each in tensors.items() if "up_proj" in name}, 10 / RANK)
    older = {
        name.replace("model.language_model.", "language_model.model."): each
        for name, each in tensors.items()
    }
    patterns = {"alpha_pattern": {"language_model.model.layers.2.mlp.up_proj": 10}}
    adapter = write(tmp_path / "adapter", older, **patterns)
    assert largest_error(model, read_model(base, adapters=[adapter])) < TOLERANCE
    pictures = factors(model, "out_proj", "1.self_attn.q_proj")
    [problem] = problems_of(base, write(tmp_path / "a", pictures))
    assert problem.startswith("a: model.vision_tower.encoder.layers.0.self_attn.out_proj.lora_A")
    assert problem.endswith("part that reads pictures, which is left out (4 tensors are)")


def test_translators_and_pickles(tmp_path: Path) -> None:
    base = tmp_path / "base"
    model = translators.save(translators.FAMILIES["bart"], base)
    tensors = factors(model, "decoder.layers.0.fc1")
    adapter = write(tmp_path / "adapter", tensors)
    (adapter / "adapter_model.safetensors").unlink()
    named = {f"base_model.model.{name}": each for name, each in tensors.items()}
    torch.save(named, adapter / "adapter_model.bin")
    before, after = read_model(base).weights, read_model(base, adapters=[adapter]).weights
    [changed] = [name for name in before if not np.array_equal(before[name], after[name])]
    down, up = tensors.values()
    expected = before[changed] + (ALPHA / RANK * up @ down).numpy()
    np.testing.assert_allclose(after[changed], expected, atol=1e-6)


def test_square_layers_of_a_captioner_are_transposed(tmp_path: Path) -> None:
    """Nothing but the kind of its decoder says that they are written [in, out]."""
    base = tmp_path / "base"
    tensors = factors(captioners.save("captioning", base), "0.attn.c_proj")
    before = read_model(base).weights
    after = read_model(base, adapters=[write(tmp_path / "adapter", tensors)]).weights
    down, up = tensors.values()
    name = "decoder.layers.0.self_attention.output.weight"
    expected = before[name] + (ALPHA / RANK * up @ down).numpy()
    np.testing.assert_allclose(after[name], expected, atol=1e-6)


def problems_of(base: Path, *adapters: Path) -> list[str]:
    with pytest.raises(CheckpointError) as caught:
        read_model(base, adapters=adapters)
    return caught.value.problems


def test_all_that_is_wrong_is_named(tmp_path: Path) -> None:
    model = random_model("smollm2")
    base, tensors = save(model, tmp_path / "base"), factors(model, "0.self_attn.q_proj")
    name = "model.layers.0.self_attn"
    tensors |= {
        f"{name}.k_proj.lora_A.weight": torch.zeros(RANK, 63),
        f"{name}.k_proj.lora_B.weight": torch.zeros(32, RANK),
        f"{name}.v_proj.lora_A.weight": torch.zeros(RANK, 64),
        f"{name}.o_proj.lora_A.weight": torch.zeros(2, 64),
        f"{name}.o_proj.lora_B.weight": torch.zeros(64, 2),
        f"{name}.x_proj.lora_A.weight": torch.zeros(RANK, 64),
        f"{name}.x_proj.lora_B.weight": torch.zeros(64, RANK),
        "model.embed_tokens.weight": torch.zeros(270, 64),
        "model.norm.lora_magic": torch.zeros(64),
    }
    adapter = write(tmp_path / "a", tensors, bias="all", init_lora_weights="pissa", news={})
    (tmp_path / "b").mkdir()
    assert problems_of(base, adapter, tmp_path / "b") == [
        "a: adapter_config.json: bias 'all' is not supported",
        "a: adapter_config.json: init_lora_weights 'pissa' is not supported",
        "a: model.embed_tokens.weight is of shape [270, 64], the base's [267, 64]",
        "a: model.norm.lora_magic is no tensor of the base",
        f"a: {name}.k_proj is of shape [32, 63], the base's [32, 64]",
        f"a: {name}.o_proj is of rank 2, adapter_config.json says 4",
        f"a: {name}.v_proj has parts that do not go together: lora_A",
        f"a: {name}.x_proj.weight is no tensor of the base",
        "b: adapter_config.json is missing",
        "b: adapter_model.safetensors or adapter_model.bin is missing",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peft_type": "LOHA"}, "peft_type 'LOHA' is not supported"),
        ({"lora_bias": True}, "lora_bias True is not supported"),
        ({"target_parameters": ["x"]}, "target_parameters ['x'] is not supported"),
        ({"alpha_pattern": {"(": 3}}, "( 3 is no regular expression"),
        ({"use_dora": True}, "parts that do not go together"),
    ],
)
def test_what_is_not_supported_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = random_model("smollm2")
    base, tensors = save(model, tmp_path / "base"), factors(model, "q_proj")
    problems = problems_of(base, write(tmp_path / "adapter", tensors, **options))
    assert message in "; ".join(problems)


def test_a_base_by_another_name_and_unknown_keys_are_noted(tmp_path: Path) -> None:
    model = random_model("smollm2")
    base, tensors = save(model, tmp_path / "base"), factors(model, "q_proj")
    options = {"base_model_name_or_path": "maker/other", "new_scale": 2}
    notes = read_model(base, adapters=[write(tmp_path / "a", tensors, **options)]).notes
    assert (
        "a: adapter_config.json: it was trained for 'maker/other', and is merged into base" in notes
    )
    assert any("new_scale = 2" in note for note in notes)
    options = {"base_model_name_or_path": "maker/base"}
    assert not read_model(base, adapters=[write(tmp_path / "a", tensors, **options)]).notes


def test_it_is_an_option_of_the_command(tmp_path: Path) -> None:
    model = random_model("smollm2")
    base, tensors = save(model, tmp_path / "base"), factors(model, "q_proj")
    adapter = write(tmp_path / "adapter", tensors)
    arguments = [str(base), "--adapter", str(adapter), "-o", str(tmp_path / "bundle")]
    result = CliRunner().invoke(export, [*arguments, "--no-verify"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert "Merged adapter: `adapter`" in (tmp_path / "bundle/README.md").read_text()


def test_other_formats_take_none(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    [problem] = problems_of(tmp_path / "model.gguf", tmp_path)
    assert problem == "adapters are merged into Hugging Face folders only, not into a GGUF file"
