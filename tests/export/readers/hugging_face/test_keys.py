"""Every key of a folder's files is used, changes nothing, is refused or is named in a note."""

import json
from pathlib import Path
from typing import Any

import pytest

from export.bundling.writer import export_checkpoint
from export.readers.hugging_face.families import read_checkpoint
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.request import FinishedEvent, FinishReason, GenerationRequest
from tests.export.readers.hugging_face import encoders, language_models, translators
from tests.export.readers.hugging_face.changing import change, problems_of
from tests.export.readers.hugging_face.language_models import (
    EOS,
    SIZES,
    VARIANTS,
    generated,
    prompts,
    random_model,
    save,
)
from tests.export.readers.hugging_face.test_tied_tables import TOLERANCE, error_of_translator
from tests.serving.engine.driving import run_all

# What makers' files hold beside what transformers writes today.
OLD_LANGUAGE_MODEL: dict[str, Any] = {
    "_name_or_path": "x",
    "attn_pdrop": 0.1,
    "auto_map": {"AutoConfig": "configuration_x.XConfig"},
    "bad_words_ids": None,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "id2label": {"0": "LABEL_0"},
    "is_llama_config": True,
    "max_length": 20,
    "min_length": 0,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "pretraining_tp": 1,
    "rope_interleaved": False,
    "temperature": 1.0,
    "top_k": 50,
    "torch_dtype": "bfloat16",
    "transformers.js_config": {"dtype": "q4"},
    "typical_p": 1.0,
}
OLD_TRANSLATOR: dict[str, Any] = {
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "classif_dropout": 0.0,
    "extra_pos_embeddings": 2,
    "gradient_checkpointing": False,
    "max_length": 64,
    "normalize_before": False,
    "num_beams": 6,
    "num_hidden_layers": 2,
    "output_past": True,
    "static_position_embeddings": True,
    "task_specific_params": {"summarization": {"max_length": 40}},
}
TOKENIZER: dict[str, Any] = {
    "add_prefix_space": False,
    "added_tokens_decoder": {"0": {"content": "<pad>"}},
    "clean_up_tokenization_spaces": False,
    "errors": "replace",
    "extra_special_tokens": {},
    "legacy": True,
    "model_max_length": 64,
    "padding_side": "right",
    "sp_model_kwargs": {},
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": "<unk>",
    "use_default_system_prompt": False,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(random_model("smollm2"), tmp_path)


@pytest.mark.parametrize("name", [*language_models.FAMILIES, *VARIANTS])
def test_what_transformers_writes_is_known(name: str, tmp_path: Path) -> None:
    found = read_checkpoint(save(random_model(name), tmp_path))
    assert [note for note in found.notes if "not known" in note] == []


@pytest.mark.parametrize("name", translators.FAMILIES)
def test_what_transformers_writes_of_translators_is_known(name: str, tmp_path: Path) -> None:
    translators.save(translators.FAMILIES[name], tmp_path)
    assert read_checkpoint(tmp_path).notes == ()


def test_what_older_files_hold_is_known(folder: Path, tmp_path: Path) -> None:
    change(folder / "tokenizer_config.json", **TOKENIZER)
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(OLD_LANGUAGE_MODEL | known))
    assert read_checkpoint(folder).notes == ()
    (folder / "generation_config.json").unlink()
    assert read_checkpoint(folder).notes == ()


def test_what_older_translators_hold_is_known(tmp_path: Path) -> None:
    translators.save(translators.FAMILIES["marian"], tmp_path)
    change(tmp_path / "config.json", **OLD_TRANSLATOR)
    change(tmp_path / "generation_config.json", renormalize_logits=True)
    assert read_checkpoint(tmp_path).notes == ()


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_unknown_keys_are_named(file: str, folder: Path) -> None:
    change(folder / file, new_scale=2.5, renamed={"a": 1})
    found = read_checkpoint(folder)
    [note] = found.notes
    assert note.startswith(file) and "new_scale = 2.5, renamed = {'a': 1}" in note
    assert note in found.files["README.md"].decode()


def test_unknown_keys_of_sections_are_named(folder: Path) -> None:
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0, "new_factor": 3.0}
    change(folder / "config.json", rope_parameters=rope)
    [note] = read_checkpoint(folder).notes
    assert "rope_parameters.new_factor = 3.0" in note


def test_many_unknown_keys_are_counted(folder: Path) -> None:
    change(folder / "config.json", **{f"new_{number}": "x" * 999 for number in range(50)})
    [note] = read_checkpoint(folder).notes
    assert note.endswith("and 30 more") and len(note) < 2000


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("llama", {"is_causal": False}),
        ("llama", {"is_encoder_decoder": True}),
        ("gemma3_text", {"attn_logit_softcapping": 2.0}),
        ("llama", {"partial_rotary_factor": 0.5}),
        ("mistral", {"partial_rotary_factor": 0.5}),
        ("qwen3", {"rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10.0}}),
        ("qwen2", {"use_sliding_window": False}),  # with layers that have a window
        ("llama", {"rope_interleaved": True}),
        ("gpt2", {"add_cross_attention": True}),
        ("gemma3_text", {"use_bidirectional_attention": True}),
        ("phi", {"qk_layernorm": True}),
        ("falcon", {"apply_residual_connection_post_layernorm": True}),
        ("bloom", {"slow_but_exact": True}),
        ("codegen", {"n_head": 2}),
        ("cohere2", {"order_of_interleaved_layers": "global_attn_first"}),
        ("cohere2", {"use_qk_norm": True}),
        ("falcon", {"alibi": True}),
        ("falcon", {"num_ln_in_parallel_attn": 2}),
        ("gpt_neo", {"attention_layers": ["global", "dilated", "local"]}),
        ("gptj", {"rotary_dim": 5}),
        ("opt", {"_remove_final_layer_norm": True}),
        ("opt", {"do_layer_norm_before": False}),
        ("opt", {"word_embed_proj_dim": 32}),
        ("llama", {"hidden_act": "mish"}),
        ("llama", {"quantization_config": {"quant_method": "mxfp4"}}),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}),
        ("qwen2", {"architectures": ["Qwen2ForTokenClassification"]}),
    ],
)
def test_what_would_compute_another_model_is_refused(
    name: str, values: dict[str, Any], tmp_path: Path
) -> None:
    save(random_model(name), tmp_path)
    change(tmp_path / "config.json", **values)
    (wanted,) = values
    found = {"rope_parameters": "partial_rotary_factor", "use_sliding_window": "layer_types"}
    found["attention_layers"] = "attention_types"
    assert found.get(wanted, wanted) in "; ".join(problems_of(tmp_path))


GENERATION: list[tuple[str, Any]] = [
    ("bad_words_ids", [[5, -1]]),
    ("bad_words_ids", [[267]]),
    ("bad_words_ids", [[]]),
    ("bad_words_ids", [5]),
    ("bad_words_ids", "5"),
    ("begin_suppress_tokens", ["5"]),
    ("encoder_no_repeat_ngram_size", -1),
    ("encoder_no_repeat_ngram_size", "2"),
    ("encoder_repetition_penalty", 0),
    ("exponential_decay_length_penalty", [5]),
    ("exponential_decay_length_penalty", [5, -1.0]),
    ("exponential_decay_length_penalty", 1.5),
    ("renormalize_logits", "yes"),
    ("suppress_tokens", [True]),
    ("forced_bos_token_id", 5),
    ("guidance_scale", 1.5),
    ("num_beam_groups", 2),
    ("sequence_bias", [[[5], -1.0]]),
    ("stop_strings", ["end"]),
    ("top_h", 0.4),
]


@pytest.mark.parametrize(("name", "value"), GENERATION)
@pytest.mark.parametrize("is_old", [False, True])
def test_makers_settings_that_cannot_be_kept_are_refused(
    name: str, value: Any, is_old: bool, folder: Path
) -> None:
    if is_old:  # settings were part of the configuration
        (folder / "generation_config.json").unlink()
    change(folder / ("config.json" if is_old else "generation_config.json"), **{name: value})
    assert name in "; ".join(problems_of(folder))


@pytest.mark.parametrize("is_old", [False, True])
def test_makers_sampling_is_kept(is_old: bool, folder: Path) -> None:
    sampling = {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "typical_p": 0.9}
    sampling |= {"repetition_penalty": 1.05}
    off = {"epsilon_cutoff": 0.0, "eta_cutoff": 0.0}
    if is_old:
        (folder / "generation_config.json").unlink()
    file = folder / ("config.json" if is_old else "generation_config.json")
    change(file, do_sample=True, **sampling, **off)
    found = read_checkpoint(folder)
    assert found.conventions.generation == sampling
    assert found.notes == ()


def test_filters_that_are_not_sampled_by_are_named(folder: Path) -> None:
    change(folder / "generation_config.json", do_sample=True, eta_cutoff=0.002)
    assert "eta_cutoff" in "; ".join(read_checkpoint(folder).notes)


def test_every_end_of_the_makers_ends_a_text(tmp_path: Path) -> None:
    """Make tokens ends that the model writes early, besides the usual one."""
    model, given = random_model("llama"), prompts(8, seed=2)
    before = generated(model, given, max_new_tokens=12)
    ends = sorted({EOS, *(ids[2] for ids in before if len(ids) > 3)})
    save(model, tmp_path / "theirs")
    change(tmp_path / "theirs" / "generation_config.json", eos_token_id=ends)
    export_checkpoint(read_checkpoint(tmp_path / "theirs"), tmp_path / "ours", Precision.FP32)
    engine = Engine(open_bundle(tmp_path / "ours"), EngineConfig(slots=8, threads=1))
    requests = [
        GenerationRequest(str(n), prompt_ids=tuple(ids), max_new_tokens=12)
        for n, ids in enumerate(given)
    ]
    stories = run_all(engine, requests)
    for number, ids in enumerate(before):
        length = next((n for n, each in enumerate(ids) if each in ends), len(ids))
        story = stories[str(number)]
        assert isinstance(story.final, FinishedEvent)
        assert story.token_ids == ids[:length]
        assert (story.final.reason is FinishReason.STOP) == (length < len(ids))
    assert len(ends) > 2


def test_a_length_that_counts_the_prompt_is_named(folder: Path) -> None:
    change(folder / "generation_config.json", max_length=SIZES["max_position_embeddings"])
    assert read_checkpoint(folder).notes == ()
    change(folder / "generation_config.json", max_length=30)
    assert "max_length = 30" in read_checkpoint(folder).notes[0]


def test_a_base_model_says_that_it_is_read_with_a_head(folder: Path) -> None:
    change(folder / "config.json", architectures=["LlamaModel"])
    assert "LlamaModel has no head" in read_checkpoint(folder).notes[0]


@pytest.mark.parametrize(
    "kind",
    ["BertForPreTraining", "BertLMHeadModel", "BertForNextSentencePrediction"],
)
def test_the_head_of_an_encoder_that_is_left_out_is_named(kind: str, tmp_path: Path) -> None:
    encoders.save(encoders.random_model("bert"), tmp_path)
    change(tmp_path / "config.json", architectures=[kind])
    found = read_checkpoint(tmp_path)
    [note] = found.notes
    assert f"{kind} is read without its head, as a model that embeds texts" in note
    assert "mean" in note and note in found.files["README.md"].decode()


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("bert", {"is_decoder": True}),
        ("bert", {"is_causal": True}),
        ("bert", {"position_embedding_type": "relative_key"}),
        ("roberta", {"pruned_heads": {"0": [1]}}),
        ("mpnet", {"pad_token_id": 2}),
        ("distilbert", {"layer_norm_eps": 0.1}),
    ],
)
def test_what_would_compute_another_encoder_is_refused(
    family: str, values: dict[str, Any], tmp_path: Path
) -> None:
    encoders.save(encoders.random_model(family), tmp_path)
    change(tmp_path / "config.json", **values)
    assert next(iter(values)) in "; ".join(problems_of(tmp_path))


@pytest.mark.parametrize("family", encoders.FAMILIES)
def test_what_transformers_writes_of_encoders_is_known(family: str, tmp_path: Path) -> None:
    for kind in encoders.KINDS:
        folder = tmp_path / kind
        encoders.save(encoders.random_model(family, 3, kind=kind), folder)
        has_head = kind != "ForMaskedLM" or family not in encoders.WITHOUT_MASKED_WORDS
        assert len(read_checkpoint(folder).notes) == (not has_head)


@pytest.mark.parametrize(
    ("name", "values", "word"),
    [
        ("bart", {"is_causal": False}, "is_causal"),
        ("marian", {"normalize_before": True}, "normalize_before"),
        ("marian", {"share_encoder_decoder_embeddings": False}, "encoder.embed_tokens"),
        ("mbart", {"is_encoder_decoder": False}, "is_encoder_decoder"),
        ("nllb", {"decoder_attention_heads": 5}, "num_heads"),
        ("nllb", {"encoder_attention_heads": 5}, "encoder_heads"),
        ("t5", {"dense_act_fn": "mish"}, "dense_act_fn"),
        ("t5", {"feed_forward_proj": "mish"}, "mish"),
    ],
)
def test_what_would_compute_another_translator_is_refused(
    name: str, values: dict[str, Any], word: str, tmp_path: Path
) -> None:
    translators.save(translators.FAMILIES[name], tmp_path)
    change(tmp_path / "config.json", dense_act_fn=None)
    change(tmp_path / "config.json", **values)
    assert word in "; ".join(problems_of(tmp_path))


@pytest.mark.parametrize(
    "values", [{"dense_act_fn": "silu"}, {"feed_forward_proj": "gated-silu"}, {}]
)
def test_activations_of_t5_are_theirs(values: dict[str, Any], tmp_path: Path) -> None:
    translators.save(translators.FAMILIES["t5 1.1"], tmp_path)
    change(tmp_path / "config.json", **values)
    assert error_of_translator(tmp_path) < TOLERANCE
