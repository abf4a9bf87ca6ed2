"""fairseq's checkpoints give the log-probabilities and translations of fairseq's modules."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from export.readers.reading import read_model
from models.configs.base import TranslationModelConfig
from tests.export.readers.toolkits.comparing import (
    TOLERANCE,
    exported,
    largest_error,
    must_compute,
    problems_of,
    some_ids,
)
from tests.export.readers.toolkits.fairseq import EOS, TransformerModel, change_saved, save
from tests.export.readers.toolkits.stateless import Stateless

NUM_SOURCE, NUM_TARGET = 40, 32
PRE_NORM: dict[str, Any] = {"encoder_normalize_before": True, "decoder_normalize_before": True}
LEARNED: dict[str, Any] = {"encoder_learned_pos": True, "decoder_learned_pos": True}
MODELS: list[dict[str, Any]] = [
    {},
    PRE_NORM | {"share_all_embeddings": True, "activation_fn": "gelu"},
    LEARNED
    | {"layernorm_embedding": True, "no_scale_embedding": True}
    | {"share_decoder_input_output_embed": True, "activation_fn": "gelu_accurate"},
    PRE_NORM | {"layernorm_embedding": True, "activation_fn": "swish", "decoder_layers": 1},
]


def saved(folder: Path, changes: dict[str, Any]) -> tuple[TransformerModel, Path]:
    torch.manual_seed(0)
    num_source = NUM_TARGET if changes.get("share_all_embeddings") else NUM_SOURCE
    model = TransformerModel(num_source, NUM_TARGET, **changes).eval()
    return model, save(model, folder, num_source, NUM_TARGET)


def changed(folder: Path, change: Any) -> Path:
    """A checkpoint that `change` has been at."""
    return change_saved(saved(folder, {})[1], change)


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_bundles_compute_what_the_modules_compute(tmp_path: Path, changes: dict[str, Any]) -> None:
    model, path = saved(tmp_path, changes)
    reference = Stateless(model, EOS, EOS, keeps_eos=True)
    must_compute(path, tmp_path / "bundle", reference, some_ids(6, 9, NUM_TARGET))


def test_a_folder_with_a_checkpoint_and_its_dictionaries(tmp_path: Path) -> None:
    saved(tmp_path, {})
    checkpoint = read_model(tmp_path)
    assert checkpoint.name == tmp_path.name
    assert isinstance(checkpoint.config, TranslationModelConfig)
    assert checkpoint.config.source_languages == ("en",)
    assert checkpoint.config.target_languages == ("fr",)
    assert checkpoint.conventions.source_suffix == checkpoint.conventions.prompt_prefix == (EOS,)
    assert Tokenizer.from_str(checkpoint.tokenizer).encode("w0 w35 nothing").ids == [4, 39, 3]


def options_by_part(tree: dict[str, Any], *, is_namespace: bool) -> None:
    """As since 0.10: {"cfg": {"model": ..., "task": ...}}, of older models still a namespace."""
    values = vars(tree.pop("args"))
    task = {name: values.pop(name) for name in ("source_lang", "target_lang")}
    model: Any = Namespace(**values)
    if not is_namespace:
        sides = {"encoder": {}, "decoder": {}, "_name": values.pop("arch")}
        for name, value in values.items():
            side, _, rest = name.partition("_")
            (sides[side] if side in ("encoder", "decoder") else sides).update({rest or name: value})
            if side not in ("encoder", "decoder"):
                sides.pop(rest, None)
                sides[name] = value
        model = sides
    tree |= {"args": None, "cfg": {"_name": None, "task": task, "model": model}}


@pytest.mark.parametrize("is_namespace", [True, False])
def test_options_by_part(tmp_path: Path, is_namespace: bool) -> None:
    model, path = saved(tmp_path, PRE_NORM)
    tree = torch.load(path, weights_only=False)
    options_by_part(tree, is_namespace=is_namespace)
    torch.save(tree, path)
    _, bundle = exported(path, tmp_path / "bundle")
    reference = Stateless(model, EOS, EOS, keeps_eos=True)
    assert largest_error(bundle, reference, some_ids(3, 9, NUM_TARGET)) < TOLERANCE


def test_names_of_older_versions(tmp_path: Path) -> None:
    """Before 0.9: queries, keys and values in one, numbered norms, an output that is no layer."""
    model, path = saved(tmp_path, {})
    tree = torch.load(path, weights_only=False)
    state = tree["model"]
    for attention in sorted({n.partition("_proj")[0][:-2] for n in state if "q_proj" in n}):
        for kind in ("weight", "bias"):
            parts = [state.pop(f"{attention}.{part}_proj.{kind}") for part in "qkv"]
            state[f"{attention}.in_proj_{kind}"] = torch.cat(parts)
    norms = {"encoder": ("self_attn", "final"), "decoder": ("self_attn", "encoder_attn", "final")}
    for stack, names in norms.items():
        for number, name in enumerate(names):
            for layer in range(2):
                for kind in ("weight", "bias"):
                    weight = state.pop(f"{stack}.layers.{layer}.{name}_layer_norm.{kind}")
                    state[f"{stack}.layers.{layer}.layer_norms.{number}.{kind}"] = weight
    state["decoder.embed_out"] = state.pop("decoder.output_projection.weight")
    torch.save(tree, path, _use_new_zipfile_serialization=False)
    _, bundle = exported(path, tmp_path / "bundle")
    reference = Stateless(model, EOS, EOS, keeps_eos=True)
    assert largest_error(bundle, reference, some_ids(3, 9, NUM_TARGET)) < TOLERANCE


UNSUPPORTED: list[dict[str, Any]] = [
    {"arch": "fconv_lm"},
    {"arch": "transformer_lm_big"},
    {"adaptive_softmax_cutoff": "1000,2000"},
    {"no_token_positional_embeddings": True},
    {"no_cross_attention": True},
    {"cross_self_attention": True},
    {"activation_fn": "linear"},
    {"decoder_attention_heads": 2},
    {"decoder_normalize_before": True},
    {"decoder_learned_pos": True},
    {"encoder_attention_heads": [4]},
]


@pytest.mark.parametrize("change", UNSUPPORTED, ids=str)
def test_what_is_not_supported_is_said_by_name_and_value(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = changed(tmp_path, lambda tree: vars(tree["args"]).update(change))
    [(name, value)] = change.items()
    assert any(f"{name} {value!r}" in problem for problem in problems_of(path))


def test_missing_misshapen_and_foreign_tensors_are_listed(tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        model = tree["model"]
        del model["encoder.layers.1.self_attn.k_proj.bias"]
        model["decoder.layers.0.fc2.weight"] = torch.zeros(32, 25)
        model["decoder.layers.0.c_attn"] = torch.zeros(4)

    assert sorted(problems_of(changed(tmp_path, change))) == [
        "decoder.layers.0.c_attn is not expected",
        "decoder.layers.0.fc2.weight has shape [32, 25], expected [32, 24]",
        "encoder.layers.1.self_attn.k_proj.bias is missing",
    ]


DICTIONARIES = {
    "missing": None,
    "empty": "",
    "no counts": "one\ntwo\n",
    "a word twice": "one 1\none 2\n",
    "too many words": "".join(f"w{i} 1\n" for i in range(99)),
}


@pytest.mark.parametrize("kind", DICTIONARIES, ids=str)
def test_damaged_dictionaries(tmp_path: Path, kind: str) -> None:
    _, path = saved(tmp_path, {})
    (tmp_path / "dict.fr.txt").unlink()
    if (text := DICTIONARIES[kind]) is not None:
        (tmp_path / "dict.fr.txt").write_text(text)
    [problem] = problems_of(path)
    assert problem.startswith("dict.fr.txt ")


def test_dictionaries_are_looked_for_beside_the_checkpoint_only(tmp_path: Path) -> None:
    outside = {"source_lang": "../../etc/passwd"}
    path = changed(tmp_path, lambda tree: vars(tree["args"]).update(outside))
    assert problems_of(path) == ["dict.passwd.txt is missing beside the checkpoint"]
