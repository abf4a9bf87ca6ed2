"""Every key of a GGUF file is used, changes nothing, is refused or is named in a note."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.readers.gguf.metadata import UNSUPPORTED
from export.readers.gguf.reader import read_checkpoint
from export.readers.gguf.tokenizer import tokenizer_from_gguf
from models.architectures.llama.config import LlamaConfig
from models.checkpoint import CheckpointError
from tests.export.readers.common.sentencepiece_models import GEMMA, trained
from tests.export.readers.gguf.files import write_gguf
from tests.export.readers.gguf.test_gguf_models import TOLERANCE, UNSAID, largest_error
from tests.export.readers.gguf.test_gguf_tokenizer import sentencepiece_fields, served
from tests.export.readers.hugging_face.language_models import VARIANTS, random_model


def problems_of(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    return "; ".join(caught.value.problems)


def test_a_file_of_known_keys_has_no_notes(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "general__file_type": 0,
        "general__base_model__0__name": "Tiny",
        "quantize__imatrix__file": "x",
        "llama__vocab_size": 267,
        "llama__rope__dimension_count": 16,
        "llama__attention__causal": True,
        "tokenizer__ggml__fim_pre_token_id": 3,
    }
    assert (
        read_checkpoint(write_gguf(random_model("llama"), tmp_path / "a.gguf", **more)).notes == ()
    )


def test_unknown_keys_are_named(tmp_path: Path) -> None:
    more: dict[str, Any] = {"llama__new_scale": 2.5, "tokenizer__ggml__add_eos_token": True}
    found = read_checkpoint(write_gguf(random_model("llama"), tmp_path / "a.gguf", **more))
    [note] = found.notes
    assert "llama.new_scale = 2.5, tokenizer.ggml.add_eos_token = True" in note
    assert note in found.files["README.md"].decode()


@pytest.mark.parametrize("key", [*UNSUPPORTED, "pooling_type"])
def test_what_would_compute_another_model_is_refused(key: str, tmp_path: Path) -> None:
    value = False if key == "attention.causal" else 3
    if key == "use_parallel_residual":
        value = True
    keys: dict[str, Any] = {f"qwen2.{key}": value}
    path = write_gguf(random_model("qwen2"), tmp_path / "a.gguf", **keys)
    assert f"qwen2.{key} {value}" in problems_of(path)


def test_a_norm_that_olmo_does_not_have_is_refused(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"olmo.attention.layer_norm_epsilon": 0.001}
    path = write_gguf(random_model("olmo"), tmp_path / "a.gguf", **keys)
    assert "attention.layer_norm_epsilon 0.001" in problems_of(path)


def test_more_experts_than_any_model_has_are_refused(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"llama.expert_count": 2**30}
    path = write_gguf(random_model("mixtral"), tmp_path / "a.gguf", **keys)
    assert "num_local_experts 1073741824 must be one of 0 to 1024" in problems_of(path)


@pytest.mark.parametrize("says_head_size", [False, True])
def test_heads_that_rotate_in_part(says_head_size: bool, tmp_path: Path) -> None:
    model = random_model("phi3 partial")
    keys: dict[str, Any] = {"phi3.rope.dimension_count": 24}
    if says_head_size:
        keys |= {"phi3.attention.key_length": 32, "phi3.attention.value_length": 32}
    found = read_checkpoint(write_gguf(model, tmp_path / "a.gguf", **keys))
    assert largest_error(model, found) < TOLERANCE


@pytest.mark.parametrize("count", [2, 6, 10, 14, 16])
def test_so_many_pairs_rotate_as_the_file_says(count: int, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"qwen2.rope.dimension_count": count}
    config = read_checkpoint(write_gguf(random_model("qwen2"), tmp_path / "a.gguf", **keys)).config
    assert isinstance(config, LlamaConfig)
    assert len(config.imported.rotary_frequencies or ()) == count // 2


@pytest.mark.parametrize(("name", "count"), [("llama", 8), ("qwen2", 7), ("qwen2", 18)])
def test_rotations_that_do_not_fit_are_refused(name: str, count: int, tmp_path: Path) -> None:
    keys: dict[str, Any] = {f"{name}.rope.dimension_count": count}
    path = write_gguf(random_model(name), tmp_path / "a.gguf", **keys)
    assert f"rope.dimension_count {count} does not fit heads of 16" in problems_of(path)


def test_sampling_of_the_makers(tmp_path: Path) -> None:
    keys = {"temp": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "penalty_repeat": 1.1}
    more: dict[str, Any] = {f"general.sampling.{name}": value for name, value in keys.items()}
    found = read_checkpoint(write_gguf(random_model("llama"), tmp_path / "a.gguf", **more))
    expected = {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05}
    assert found.conventions.generation == expected
    [note] = found.notes
    assert "general.sampling.penalty_repeat" in note


def test_templates_for_other_uses(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "tokenizer.chat_templates": ["tool_use", "rag"],
        "tokenizer.chat_template.tool_use": "with tools",
        "tokenizer.chat_template.rag": "with documents",
    }
    found = read_checkpoint(write_gguf(random_model("llama"), tmp_path / "a.gguf", **more))
    template = found.conventions.chat_template
    assert template is not None and "with tools" in template and "messages[0]" in template
    assert found.notes == ("chat templates are left out: rag",)


def test_an_unknown_token_that_is_a_control_token(tmp_path: Path) -> None:
    """As Gemma 3's files have it: the metadata says which token it is."""
    fields = {**sentencepiece_fields(trained(**GEMMA)), "add_space_prefix": False}
    before = served(tmp_path / "before.json", fields)
    unknown = int(np.flatnonzero(np.array(fields["token_type"]) == 2)[0])
    kinds = [3 if kind == 2 else kind for kind in fields["token_type"]]
    after = served(
        tmp_path / "after.json", {**fields, "token_type": kinds, "unknown_token_id": unknown}
    )
    texts = ["A dog runs.", "  two  spaces", "\u2603 \U0001f600", "<unk> <pad>", ""]
    assert after.encode_batch(texts) == before.encode_batch(texts)


@pytest.mark.parametrize("unknown", [-1, 10**6, "x", 1.5])
def test_an_unknown_token_that_is_none(unknown: Any) -> None:
    fields = sentencepiece_fields(trained(**GEMMA)) | {"unknown_token_id": unknown}
    problems: list[str] = []
    keyed = {f"tokenizer.ggml.{key}": value for key, value in fields.items()}
    assert tokenizer_from_gguf(keyed, problems) is None
    assert "unknown_token_id" in problems[0]


def test_a_file_of_gemma_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens as llama.cpp's converter writes them: <unk> is a control token, its id a key."""
    name = "gemma3 of GGUF"
    monkeypatch.setitem(VARIANTS, name, UNSAID[name])
    fields = sentencepiece_fields(trained(**GEMMA))
    kinds = [int(kind) for kind in fields["token_type"]]
    keys: dict[str, Any] = {
        "model": "llama",
        "pre": "default",
        "tokens": fields["tokens"],
        "token_type": [3 if kind == 2 else kind for kind in kinds],
        "scores": fields["scores"].tolist(),
        "merges": None,
        "unknown_token_id": kinds.index(2),
        "add_space_prefix": False,
        "add_bos_token": True,
        "add_eos_token": False,
    }
    more = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    more |= {"gemma3.rope.freq_base_swa": 10000.0, "gemma3.attention.sliding_window_pattern": 6}
    model = random_model(name, vocab_size=len(fields["tokens"]))
    found = read_checkpoint(write_gguf(model, tmp_path / "a.gguf", **more))
    assert largest_error(model, found) < TOLERANCE
    assert found.conventions.unk == kinds.index(2)
    assert found.conventions.prompt_prefix == (1,)
    assert found.notes == ()
