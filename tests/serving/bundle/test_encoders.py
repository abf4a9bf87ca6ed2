"""A bundle that only encodes opens when its graph, its vector or its labels agree."""

from dataclasses import replace
from pathlib import Path

import pytest

from serving.bundle.manifest import (
    FORMAT_VERSION,
    Activation,
    AttentionShape,
    EncoderSpec,
    GraphSpec,
    Limits,
    Manifest,
    Precision,
    Task,
    TensorSpec,
    Tokens,
)
from serving.bundle.opening import open_bundle, write_manifest
from serving.bundle.validation import manifest_problems

INPUTS = (
    TensorSpec("source_ids", "int64", ("batch", "source")),
    TensorSpec("source_lengths", "int32", ("batch",)),
    TensorSpec("source_types", "int64", ("batch", "source")),
)
ENCODE = GraphSpec("encode.onnx", INPUTS, (TensorSpec("embedding", "float32", ("batch", 8)),))
EMBEDDER = Manifest(
    format_version=FORMAT_VERSION,
    name="minilm",
    task=Task.EMBED,
    architecture="bert",
    precision=Precision.FP32,
    source_languages=(),
    target_languages=(),
    tokens=Tokens(0, 1, 2, (1,), (2,), (), ()),
    limits=Limits(64, 0),
    graphs={"encode": ENCODE},
    states=(),
    vocab_size=100,
    window=0,
    files={"encode.onnx": "", "tokenizer.json": ""},
    encoder=EncoderSpec(8, is_normalised=True, separator=(2,), prompts={"query": "query: "}),
)
LABELS = ("good", "bad")
CLASSIFIER = replace(
    EMBEDDER,
    task=Task.CLASSIFY,
    graphs={
        "encode": replace(ENCODE, outputs=(TensorSpec("logits", "float32", ("batch", 2)),)),
    },
    encoder=EncoderSpec(labels=LABELS, activation=Activation.SOFTMAX),
)


def test_what_was_sealed_opens_as_it_was(tmp_path: Path) -> None:
    for name in EMBEDDER.files:
        (tmp_path / name).write_text(name)
    for manifest in (EMBEDDER, CLASSIFIER):
        sealed = write_manifest(tmp_path, manifest)
        assert open_bundle(tmp_path).manifest == sealed
        assert sealed.encoder == manifest.encoder and not sealed.has_shortlist


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (replace(EMBEDDER, encoder=None), "encoder: missing for task embed"),
        (replace(EMBEDDER, window=4), "window: must be there for task fill-mask alone"),
        (replace(EMBEDDER, limits=Limits(None, 0)), "limits.max_source_tokens: missing"),
        (replace(EMBEDDER, graphs={}), "graphs.encode: missing"),
        (replace(EMBEDDER, encoder=EncoderSpec(9)), "graphs.encode.outputs: embedding is missing"),
        (replace(EMBEDDER, encoder=EncoderSpec(0)), "encoder.dimension: 0 is not positive"),
        (replace(EMBEDDER, encoder=EncoderSpec(8, separator=(100,))), "tokens: id 100 is outside"),
        (
            replace(EMBEDDER, encoder=EncoderSpec(8, default_prompt="query")),
            "encoder.default_prompt: 'query' is not one of",
        ),
        (
            replace(EMBEDDER, graphs={"encode": replace(ENCODE, inputs=INPUTS[1:])}),
            "graphs.encode.inputs: source_ids is missing",
        ),
        (replace(CLASSIFIER, encoder=EncoderSpec()), "encoder.labels: must not be empty"),
        (
            replace(CLASSIFIER, encoder=EncoderSpec(labels=("a", "a"))),
            "encoder.labels: must differ",
        ),
        (replace(CLASSIFIER, encoder=EncoderSpec(8, labels=LABELS)), "encoder.dimension, encoder"),
    ],
)
def test_what_does_not_agree_is_told(manifest: Manifest, problem: str) -> None:
    assert any(line.startswith(problem) for line in manifest_problems(manifest))


def test_nothing_is_wrong_with_those_that_agree() -> None:
    assert not list(manifest_problems(EMBEDDER)) and not list(manifest_problems(CLASSIFIER))


def test_what_tells_of_attention_says_so() -> None:
    hops = TensorSpec("hops", "float32", ("batch", 1, 4, "source"))
    telling = replace(ENCODE, file="encode_attention.onnx", outputs=(*ENCODE.outputs, hops))
    told = replace(
        EMBEDDER,
        graphs={"encode": ENCODE, "encode_attention": telling},
        files=EMBEDDER.files | {"encode_attention.onnx": ""},
        attention={"hops": AttentionShape(1, 1)},
    )
    assert not list(manifest_problems(told))
    [problem] = manifest_problems(replace(told, attention={}))
    assert problem == "attention.hops: missing, graphs.encode_attention gives hops"
    flat = replace(telling, outputs=(*ENCODE.outputs, replace(hops, shape=("batch", 4, "source"))))
    [problem] = manifest_problems(replace(told, graphs=told.graphs | {"encode_attention": flat}))
    assert problem.endswith("expected float32 [batch, heads, hops, source]")
