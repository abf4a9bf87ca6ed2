"""Imported language models with modules of Sentence Transformers give the vectors that it gives."""

import json
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers.processors import TemplateProcessing

from export.bundling.running import TextGraph
from export.bundling.writer import export_checkpoint
from export.readers.hugging_face.families import read_checkpoint
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.text.tokenizer import Tokenizer
from tests.export.readers.hugging_face.changing import change, problems_of
from tests.export.readers.hugging_face.language_models import random_model
from tests.tiny import byte_tokenizer

LARGEST_ERROR = 1e-4
INSTRUCTION = "Instruct: find it\nQuery:"
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34, 40)
WORDS = "a text of words, longer than it reads; numbers 123 and more"
TEXTS = [WORDS[:length] for length in LENGTHS] + [WORDS[length:] for length in LENGTHS]
TEXTS += ["é", "\n"]
QWEN = [Pooling(64, "lasttoken"), Normalize()]
GEMMA = [
    Pooling(64, "mean"),
    Dense(64, 96, bias=False, activation_function=None),
    Dense(96, 40, bias=False, activation_function=None),
    Normalize(),
]
BOTH_WAYS = {"use_bidirectional_attention": True}
MODELS: dict[str, tuple[str, dict[str, Any], list[Any], str]] = {
    "EmbeddingGemma": ("gemma3_text", BOTH_WAYS, GEMMA, "<s> $A </s>"),
    "EmbeddingGemma with 5 on each side": (
        "gemma3_text",
        BOTH_WAYS | {"sliding_window": 9},
        GEMMA,
        "<s> $A </s>",
    ),
    "Gemma 2": ("gemma2", {}, QWEN, "<s> $A"),
    "Gemma 3, causal": ("gemma3_text", {}, QWEN, "<s> $A"),
    "GLM-4": ("glm4", {}, QWEN, "<s> $A"),
    "Llama both ways": ("llama", {"is_causal": False}, [Pooling(64, "mean")], "<s> $A"),
    "Mistral": ("mistral", {}, QWEN, "<s> $A </s>"),
    "Qwen2 with windows": ("qwen2", {}, QWEN, "$A </s>"),
    "Qwen3-Embedding": ("qwen3", {}, QWEN, "$A </s>"),
    "Qwen3 without an end": ("qwen3", {"head_dim": 20}, QWEN, "$A"),
}


def saved(name: str, folder: Path, **changes: Any) -> tuple[SentenceTransformer, Path]:
    """Make a model of Sentence Transformers, and save it."""
    family, options, modules, template = MODELS[name]
    first, tokenizer = folder / "first", byte_tokenizer()
    random_model(family, **options, **changes).save_pretrained(first)
    marks = [(mark, tokenizer.token_to_id(mark)) for mark in ("<s>", "</s>") if mark in template]
    if marks:
        tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=marks)
    tokenizer.save(str(first / "tokenizer.json"))
    side = "left" if family.startswith("qwen") else "right"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "padding_side": side}
    change(first / "tokenizer_config.json", **config, pad_token="<pad>", model_max_length=64)
    model = SentenceTransformer(
        modules=[Transformer(str(first)), *modules],
        device="cpu",
        prompts={"query": INSTRUCTION, "document": ""},
    )
    model.save(str(folder / "theirs"), create_model_card=False)
    return model, folder / "theirs"


def imported(folder: Path, precision: Precision = Precision.FP32) -> Bundle:
    bundle = folder.parent / f"bundle-{precision}"
    export_checkpoint(read_checkpoint(folder), bundle, precision)
    return open_bundle(bundle)


class Embedder:
    """Embeds texts side by side, as the manifest says."""

    def __init__(self, bundle: Bundle) -> None:
        self._graph, self._tokens = TextGraph(bundle), bundle.manifest.tokens
        self._tokenizer = Tokenizer(bundle.folder / "tokenizer.json", bundle.manifest.vocab_size)
        assert bundle.manifest.limits.max_source_tokens is not None
        ends = len(self._tokens.source_prefix) + len(self._tokens.source_suffix)
        self._room = bundle.manifest.limits.max_source_tokens - ends

    def __call__(self, texts: list[str], prompt: str = "") -> np.ndarray:
        prefix, suffix = self._tokens.source_prefix, self._tokens.source_suffix
        ids = self._tokenizer.encode_batch([prompt + text for text in texts])
        rows = [[*prefix, *each[: self._room], *suffix] for each in ids]
        return self._graph.run(rows, [[0] * len(row) for row in rows])["embedding"]


@pytest.mark.parametrize("name", MODELS)
def test_embeddings_are_those_of_sentence_transformers(name: str, tmp_path: Path) -> None:
    model, folder = saved(name, tmp_path)
    bundle = imported(folder)
    spec = bundle.manifest.encoder
    assert spec is not None and spec.prompts == {"query": INSTRUCTION}
    assert bundle.manifest.limits.max_source_tokens == 64
    embed = Embedder(bundle)
    for prompt in ("", INSTRUCTION):
        expected = model.encode(TEXTS, prompt=prompt)
        assert np.abs(embed(TEXTS, prompt) - expected).max() < LARGEST_ERROR
    for pair in zip(TEXTS, TEXTS[::-1], strict=True):
        assert np.abs(embed([*pair]) - model.encode([*pair])).max() < LARGEST_ERROR
    assert read_checkpoint(folder).notes == ()


@pytest.mark.parametrize("name", ["EmbeddingGemma", "Qwen3-Embedding"])
def test_int8_keeps_the_direction(name: str, tmp_path: Path) -> None:
    model, folder = saved(name, tmp_path)
    found = Embedder(imported(folder, Precision.INT8))(TEXTS)
    assert (found * model.encode(TEXTS)).sum(1).min() > 0.998


def test_a_folder_of_a_whole_language_model_is_enough(tmp_path: Path) -> None:
    """Its output layer is not used."""
    model, folder = saved("Qwen3-Embedding", tmp_path, tie_word_embeddings=False)
    copyfile(tmp_path / "first" / "model.safetensors", folder / "model.safetensors")
    change(folder / "config.json", architectures=["Qwen3ForCausalLM"])
    found = Embedder(imported(folder))(TEXTS)
    assert np.abs(found - model.encode(TEXTS)).max() < LARGEST_ERROR


def test_texts_may_be_made_shorter(tmp_path: Path) -> None:
    found = read_checkpoint(saved("Mistral", tmp_path)[1], 20).config
    assert found.max_source_tokens == 20 and found.window.size == 6  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("family", "options", "problem"),
    [
        ("arcee", {}, "texts (gated_ffn)"),
        ("exaone4", {}, "model_type 'exaone4' is not supported in models that embed texts"),
        ("gpt2", {}, "model_type 'gpt2' embeds no texts here"),
        ("granite", {}, "logits_scaling 2.0 is not supported"),
        ("hunyuan_v1_dense", {}, "texts (qk_norm_after_rotation)"),
        ("ministral3", {}, "texts (query_growth)"),
        ("mixtral", {}, "num_experts_per_tok 2 is not supported in models that embed texts"),
        ("olmo2", {}, "texts (qk_norm_spans_heads)"),
        ("phi", {}, "model_type 'phi' embeds no texts here"),
        ("qwen3_moe", {}, "num_experts_per_tok 2 is not supported in models that embed texts"),
        ("smollm3", {}, "no_rope_layers"),
        ("mistral", {"is_causal": False}, "is_causal False is not supported"),
        ("qwen3", {"architectures": ["Qwen3ForSequenceClassification"]}, "is no language model"),
    ],
)
def test_what_encoders_cannot_do_is_refused(
    family: str, options: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    random_model(family).save_pretrained(tmp_path)
    change(tmp_path / "config.json", **options)
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    modules = [{"type": "x.Transformer", "path": ""}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    problems = problems_of(tmp_path)
    assert any(problem in each for each in problems), problems
    assert not any(" None " in each for each in problems), problems
