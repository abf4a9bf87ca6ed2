"""Hugging Face folders: how weights are stored, what is told beside them, and what can be wrong."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.hugging_face.families import can_read, read_checkpoint
from models.checkpoint import CheckpointError
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.readers.hugging_face.changing import change, problems_of
from tests.export.readers.hugging_face.language_models import (
    BOS,
    EOS,
    log_probabilities,
    random_model,
    save,
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(random_model("smollm2"), tmp_path_factory.mktemp("model"))


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.mark.parametrize("storage", ["shards", "float16", "bfloat16", "pickle", "pickled shards"])
def test_every_way_to_store_weights(storage: str, saved: Path, tmp_path: Path) -> None:
    model = random_model("smollm2")
    if storage in ("float16", "bfloat16"):
        model = model.to(getattr(torch, storage))
    save(model, tmp_path, max_shard_size="50KB" if storage == "shards" else "1GB")
    if storage.startswith("pickle"):
        pickle(tmp_path, parts=3 if "shards" in storage else 1)
    assert len(list(tmp_path.glob("*-of-*"))) > 1 or "shards" not in storage
    expected, found = read_checkpoint(saved).weights, read_checkpoint(tmp_path).weights
    assert expected.keys() == found.keys()
    for name, array in found.items():
        rounded = torch.from_numpy(expected[name]).to(model.dtype).float().numpy()
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, rounded)


def pickle(folder: Path, parts: int) -> None:
    """Make what older folders hold instead of safetensors."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = ["pytorch_model.bin"]
    if parts > 1:
        names = [f"pytorch_model-{i}-of-{parts}.bin" for i in range(parts)]
        places = {name: names[i % parts] for i, name in enumerate(weights)}
        change(folder / "pytorch_model.bin.index.json", weight_map=places)
    for i, name in enumerate(names):
        some = list(weights.items())[i::parts]
        torch.save({key: torch.from_numpy(each) for key, each in some}, folder / name)


def test_weights_are_read_when_they_are_asked_for(folder: Path) -> None:
    weights = read_checkpoint(folder).weights
    assert weights["norm.weight"] is not weights["norm.weight"]
    base = weights["embedding.weight"].base
    assert base is not None, "fp32 is not even copied"


def test_base_models_have_shorter_names(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    expected = read_checkpoint(folder).weights["layers.1.attention.key.weight"].copy()
    save_file({name.removeprefix("model."): each for name, each in weights.items()}, path)
    found = read_checkpoint(folder).weights["layers.1.attention.key.weight"]
    np.testing.assert_array_equal(found, expected)


def test_needless_tensors_are_left_out(folder: Path) -> None:
    path = folder / "model.safetensors"
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    extra["lm_head.weight"] = load_file(path)["model.embed_tokens.weight"]
    save_file(load_file(path) | extra, path)
    assert "output.weight" not in read_checkpoint(folder).weights


def test_conventions(folder: Path) -> None:
    plain = read_checkpoint(folder).conventions
    assert (plain.prompt_prefix, plain.stop) == ((BOS,), (EOS,))
    assert (plain.chat_template, dict(plain.generation)) == (None, {})
    sampling = {"do_sample": True, "temperature": 0.6, "top_p": 0.9}
    change(folder / "generation_config.json", eos_token_id=[EOS, 7], max_new_tokens=99, **sampling)
    template = [{"name": "rag", "template": "no"}, {"name": "default", "template": "{{ yes }}"}]
    change(folder / "tokenizer_config.json", chat_template=template)
    change(folder / "tokenizer.json", post_processor=None)
    found = read_checkpoint(folder).conventions
    assert (found.prompt_prefix, found.stop) == ((), (EOS, 7))
    assert found.chat_template == "{{ yes }}"
    expected = {"temperature": 0.6, "top_p": 0.9, "top_k": 50, "max_new_tokens": 99}
    assert found.generation == expected
    (folder / "chat_template.jinja").write_text("{{ file }}")
    assert read_checkpoint(folder).conventions.chat_template == "{{ file }}"


@pytest.mark.parametrize(("told", "expected"), [(None, ()), (False, ()), (True, (BOS,))])
def test_older_tokenizers_say_whether_a_text_begins(
    told: bool | None, expected: tuple[int, ...], folder: Path
) -> None:
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("")
    change(folder / "tokenizer_config.json", add_bos_token=told, tokenizer_class="GPT2Tokenizer")
    assert read_checkpoint(folder).conventions.prompt_prefix == expected


def test_without_sampling_there_is_no_temperature(folder: Path) -> None:
    change(folder / "generation_config.json", temperature=0.6, num_beams=4, repetition_penalty=1.0)
    assert read_checkpoint(folder).conventions.generation == {"num_beams": 4}


@pytest.mark.parametrize("name", ["bloom", "gpt2", "gpt_neo", "gptj", "gemma3_text", "opt"])
def test_a_shorter_context(name: str, tmp_path: Path) -> None:
    folder = save(model := random_model(name), tmp_path / "theirs")
    export_checkpoint(read_checkpoint(folder, context_length=5), tmp_path / "ours", Precision.FP32)
    assert read_checkpoint(folder).config.model_dump()["context_length"] == 64
    bundle, ids = open_bundle(tmp_path / "ours"), [BOS, 50, 60, 70]
    assert bundle.manifest.limits.max_target_tokens == 5
    (found,) = GraphRows(bundle, [[]]).read([ids])
    assert np.abs(found - log_probabilities(model, ids)[-1]).max() < 1e-4
    with pytest.raises(CheckpointError, match="context length 65 is not one of 2 to 64"):
        read_checkpoint(folder, context_length=65)


def test_a_context_of_models_that_read_texts_of_any_length(tmp_path: Path) -> None:
    folder = save(random_model("mamba2"), tmp_path)
    lengths = [
        read_checkpoint(folder, each).config.model_dump()["context_length"] for each in (None, 99)
    ]
    assert lengths == [2**15, 99]
    with pytest.raises(CheckpointError, match="context length 32769 is not one of 2 to 32768"):
        read_checkpoint(folder, context_length=2**15 + 1)


def test_what_would_compute_another_model_is_refused(tmp_path: Path) -> None:
    folder = save(random_model("mamba2"), tmp_path)
    change(folder / "config.json", time_step_limit=[0.0, 0.1], hidden_act="relu", num_heads=5)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    told = "\n".join(caught.value.problems)
    for name in ("hidden_act 'relu'", "time_step_limit [0.0, 0.1]", "num_heads 5"):
        assert f"config.json: {name}" in told


def test_the_card_says_where_it_comes_from(folder: Path) -> None:
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# Model\n")
    card = read_checkpoint(folder).files["README.md"].decode()
    assert "- Architecture: llama" in card
    assert "- Licence: apache-2.0" in card


def test_config_problems_come_together(folder: Path) -> None:
    change(
        folder / "config.json",
        hidden_act="mish",
        num_attention_heads="four",
        quantization_config={"bits": 4},
        rope_parameters={"rope_type": "xpos"},
    )
    (folder / "tokenizer.json").unlink()
    found = "; ".join(problems_of(folder))
    for problem in (
        "hidden_act 'mish' is not supported",
        "num_attention_heads 'four' must be int",
        "quantization_config {'bits': 4} is not supported",
        "rope_type 'xpos' is not supported",
        "tokenizer",
    ):
        assert problem in found


def test_tensor_problems_come_together(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.norm.weight"]
    weights["model.layers.0.mlp.up_proj.weight"] = np.zeros((3, 2), np.float32)
    weights["model.layers.0.mlp.gate_proj.weight"] = np.zeros((80, 64), np.int8)
    weights["model.layers.0.block_sparse_moe.gate.weight"] = np.zeros(2, np.float32)
    save_file(weights, path)
    (folder / "tokenizer.json").write_text("{")
    *tensors, tokenizer = sorted(problems_of(folder), key=lambda each: "tokenizer" in each)
    assert "tokenizer.json" in tokenizer
    assert sorted(tensors) == [
        "model.layers.0.block_sparse_moe.gate.weight is not expected",
        "model.layers.0.mlp.gate_proj.weight holds I8, which is not supported",
        "model.layers.0.mlp.up_proj.weight has shape [3, 2], expected [80, 64]",
        "model.norm.weight is missing",
    ]


def test_our_own_limits_are_said_once(folder: Path) -> None:
    change(folder / "config.json", num_key_value_heads=3)
    message = "config.json: num_heads 4 must be a multiple of num_kv_heads 3"
    assert message in problems_of(folder)


@pytest.mark.parametrize("kind", ["dbrx", None, 7])
def test_families_that_nobody_reads(kind: Any, folder: Path) -> None:
    change(folder / "config.json", model_type=kind)
    (problem,) = problems_of(folder)
    assert "model_type" in problem
    assert can_read(folder) == (kind is not None)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_truncated_weights(length: int, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    (problem,) = problems_of(folder)
    assert problem.startswith("model.safetensors cannot be read: ")


def test_shards_that_are_not_there(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert problems_of(folder) == ["model.safetensors or pytorch_model.bin is missing"]
    index = folder / "model.safetensors.index.json"
    change(index, weight_map={"a": "gone.safetensors", "b": "../other.safetensors"})
    assert sorted(problems_of(folder)) == [
        "gone.safetensors is missing",
        f"{index.name}: '../other.safetensors' is no name of a file beside it",
    ]


def test_weights_that_git_has_not_fetched(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "fetch that with `git lfs pull`" in "; ".join(problems_of(folder))


def test_files_that_are_no_json(folder: Path) -> None:
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        (folder / name).write_text("[1, 2" if name == "config.json" else "[1]")
    found = problems_of(folder)
    assert any(each.startswith("config.json is not JSON") for each in found)
    assert "generation_config.json: expected an object, found list" in found
    assert "tokenizer_config.json: expected an object, found list" in found


SIZES = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"]
SIZES += ["num_attention_heads", "num_key_value_heads", "max_position_embeddings", "head_dim"]


@pytest.mark.parametrize("value", [0, -1, 2**31, 10**30, 0.5, True, "", [], {}, math.nan])
@pytest.mark.parametrize("name", [*SIZES, "rms_norm_eps", "eos_token_id", "rope_scaling"])
def test_no_size_breaks_the_reader(name: str, value: Any, folder: Path) -> None:
    change(folder / "config.json", **{name: value, "rope_parameters": None})
    try:
        read_checkpoint(folder)
    except CheckpointError as error:
        assert error.problems


@pytest.mark.parametrize("kind", ["linear", "dynamic", "llama3", "yarn", "longrope"])
def test_no_scaling_breaks_the_reader(kind: str, folder: Path) -> None:
    names = ["factor", "original_max_position_embeddings", "long_factor", "low_freq_factor"]
    lists = {"short_factor": [1.0] * 8, "long_factor": [1.0] * 8}
    for name in [*names, "high_freq_factor", "beta_fast", "attention_factor", "rope_theta"]:
        for value in (None, 0, 0.0, -1, 10**300, "x", [], [0.0] * 8):
            rope = {"rope_type": kind, "factor": 2.0, **lists, name: value}
            change(folder / "config.json", rope_parameters=rope)
            try:
                read_checkpoint(folder)
            except CheckpointError as error:
                assert error.problems
