"""Tables of words that a folder stores though they are shared, or lacks though they are not: what
`transformers` makes of them is computed here too, or the folder is refused.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from export.readers.hugging_face.families import read_checkpoint
from models.decoding import teacher_forced_log_probabilities
from models.loading import load_module
from tests.export.readers.hugging_face import language_models, translators
from tests.export.readers.hugging_face.changing import change, change_weights, problems_of
from tests.export.readers.hugging_face.language_models import BOS, log_probabilities, random_model
from tests.export.readers.hugging_face.translators import FAMILIES

IDS = [BOS, 40, 90, 33, 120]
TOLERANCE = 1e-4  # nats
TIED = {"smollm2": "model.embed_tokens", "gpt2": "transformer.wte", "gemma": "model.embed_tokens"}
TIED |= {"mamba": "backbone.embeddings", "mamba2 tied, with biases": "backbone.embeddings"}
STACKS = ["bart", "mbart-50", "nllb", "marian", "t5"]


def other_table(folder: Path, like: str) -> np.ndarray:
    table = load_file(folder / "model.safetensors")[like]
    drawn = np.random.default_rng(3).standard_normal(table.shape) * table.std()
    return drawn.astype(np.float32)


def error_of_language_model(folder: Path) -> float:
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    found = teacher_forced_log_probabilities(load_module(read_checkpoint(folder)), [], IDS).numpy()
    return float(np.abs(found - log_probabilities(model, IDS)).max())


@pytest.mark.parametrize(("name", "embedding"), TIED.items())
@pytest.mark.parametrize("is_equal", [True, False])
def test_an_output_that_is_stored_though_shared(
    name: str, embedding: str, is_equal: bool, tmp_path: Path
) -> None:
    language_models.save(random_model(name), tmp_path)
    before = load_file(tmp_path / "model.safetensors")[f"{embedding}.weight"].copy()
    table = before if is_equal else other_table(tmp_path, f"{embedding}.weight")
    change_weights(tmp_path, lm_head__weight=table)

    assert error_of_language_model(tmp_path) < TOLERANCE
    notes = [note for note in read_checkpoint(tmp_path).notes if "lm_head.weight is stored" in note]
    assert len(notes) == (not is_equal)


@pytest.mark.parametrize(("name", "embedding"), TIED.items())
def test_a_shared_table_under_the_output_s_name(name: str, embedding: str, tmp_path: Path) -> None:
    language_models.save(random_model(name), tmp_path)
    table = load_file(tmp_path / "model.safetensors")[f"{embedding}.weight"].copy()
    change_weights(tmp_path, lm_head__weight=table, **{f"{embedding}.weight": None})

    assert error_of_language_model(tmp_path) < TOLERANCE


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "qwen3", "phi3"])
def test_an_output_that_is_missing_though_not_shared(name: str, tmp_path: Path) -> None:
    language_models.save(random_model(name), tmp_path)
    output = "embed_out" if name == "gpt_neox" else "lm_head"
    change_weights(tmp_path, **{f"{output}.weight": None})

    assert f"{output}.weight is missing" in problems_of(tmp_path)


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("is_equal", [True, False])
def test_an_output_of_translators_that_is_stored_though_shared(
    name: str, is_equal: bool, tmp_path: Path
) -> None:
    translators.save(FAMILIES[name], tmp_path)
    shared = "shared.weight" if name == "t5" else "model.shared.weight"
    before = load_file(tmp_path / "model.safetensors")[shared].copy()
    table = before if is_equal else other_table(tmp_path, shared)
    change_weights(tmp_path, lm_head__weight=table)

    assert error_of_translator(tmp_path) < TOLERANCE


@pytest.mark.parametrize("name", ["t5", "t5 1.1"])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_shared_table_under_the_name_of_one_side(name: str, side: str, tmp_path: Path) -> None:
    translators.save(FAMILIES[name], tmp_path)
    table = load_file(tmp_path / "model.safetensors")["shared.weight"].copy()
    change_weights(tmp_path, **{f"{side}.embed_tokens.weight": table, "shared.weight": None})

    assert error_of_translator(tmp_path) < TOLERANCE


def error_of_translator(folder: Path) -> float:
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    source, target = [20, 30, 40, 50], [2, 33, 44, 55]
    checkpoint = read_checkpoint(folder)
    with torch.inference_mode():
        answer = model(torch.tensor([source]), decoder_input_ids=torch.tensor([target]))
    theirs = answer.logits[0].clone()
    for banned in model.generation_config.bad_words_ids or []:
        theirs[:, banned] = -torch.inf
    module = load_module(checkpoint)
    found = teacher_forced_log_probabilities(module, source, target).numpy()
    expected = theirs.log_softmax(-1).numpy()
    known = np.isfinite(expected)
    return float(np.abs(found[known] - expected[known]).max())


@pytest.mark.parametrize("name", ["bart", "mbart-50", "nllb", "marian"])
def test_an_output_of_translators_that_is_missing_though_not_shared(
    name: str, tmp_path: Path
) -> None:
    translators.save(FAMILIES[name], tmp_path)
    change(tmp_path / "config.json", tie_word_embeddings=False)
    change_weights(tmp_path, lm_head__weight=None)

    assert "lm_head.weight is missing" in "; ".join(problems_of(tmp_path))


@pytest.mark.parametrize("name", ["bart", "nllb", "t5"])
def test_sources_and_targets_of_unequal_tables_are_refused(name: str, tmp_path: Path) -> None:
    translators.save(FAMILIES[name], tmp_path)
    prefix = "" if name == "t5" else "model."
    table = other_table(tmp_path, f"{prefix}shared.weight")
    change_weights(tmp_path, **{f"{prefix}encoder.embed_tokens.weight": table})

    assert "differ" in "; ".join(problems_of(tmp_path))
