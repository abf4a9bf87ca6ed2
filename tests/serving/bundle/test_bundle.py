"""A bundle opens when everything in it agrees; otherwise all its problems are told at once."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from export.graph.choice import select_graph
from serving.bundle.manifest import (
    FORMAT_VERSION,
    GraphSpec,
    Limits,
    Manifest,
    Precision,
    StateKind,
    StateSpec,
    Task,
    TensorSpec,
    Tokens,
)
from serving.bundle.opening import open_bundle, write_manifest
from serving.errors import BundleError

STATES = (
    StateSpec("self_key.0", StateKind.APPEND, (2, "length", 8), "float32"),
    StateSpec("cross_key.0", StateKind.CONSTANT, (2, "source", 8), "float32"),
    StateSpec("hidden", StateKind.REPLACE, (16,), "float32"),
)


ATTENTION = TensorSpec("attention", "float32", ("batch", 8, "source"))


def manifest() -> Manifest:
    tensors = [TensorSpec(state.name, state.dtype, ("batch", *state.shape)) for state in STATES]
    following = [
        TensorSpec(f"{state.name}.next", state.dtype, ("batch", *state.shape))
        for state in STATES
        if state.kind is not StateKind.CONSTANT
    ]
    choice = [
        TensorSpec("logp", "float32", ("batch", 100)),
        TensorSpec("top_logp", "float32", ("batch", 32)),
        TensorSpec("top_ids", "int64", ("batch", 32)),
        TensorSpec("log_normaliser", "float32", ("batch",)),
    ]
    ids = TensorSpec("ids", "int64", ("batch", "tokens"))
    step = GraphSpec("step.onnx", (ids, *tensors), (*choice, *following))
    outputs = (*step.outputs, ATTENTION)
    source_ids = TensorSpec("source_ids", "int64", ("batch", "source"))
    return Manifest(
        format_version=FORMAT_VERSION,
        name="tiny",
        task=Task.TRANSLATE,
        architecture="transformer",
        precision=Precision.FP32,
        source_languages=("en",),
        target_languages=("fr",),
        tokens=Tokens(0, 1, 2, (), (2,), (1,), (2,)),
        limits=Limits(64, 32),
        graphs={
            "encode": GraphSpec("encode.onnx", (source_ids,), (tensors[1], tensors[2])),
            "step": step,
            "step_attention": GraphSpec("step_attention.onnx", step.inputs, outputs),
        },
        states=STATES,
        vocab_size=100,
        window=32,
        files={},
        quality={"bleu": {"multi30k": 45.5}},
        alignment_heads=(4, 5, 6, 7),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    graphs = ("encode.onnx", "step.onnx", "step_attention.onnx")
    for name in (*graphs, "tokenizer.json", "README.md"):
        (tmp_path / name).write_text(name)
    write_manifest(tmp_path, manifest())
    return tmp_path


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def problems_of(folder: Path) -> list[str]:
    with pytest.raises(BundleError) as caught:
        open_bundle(folder)
    return caught.value.problems


def test_what_was_sealed_opens_as_it_was(folder: Path) -> None:
    bundle = open_bundle(folder)
    assert bundle.manifest == write_manifest(folder, manifest())
    assert bundle.manifest.vocab_size == 100
    assert bundle.manifest.num_attention_heads == 8
    assert bundle.graph_path("step") == folder / "step.onnx"
    assert bundle.manifest.states == STATES


def test_all_problems_are_told_at_once(folder: Path) -> None:
    (folder / "step.onnx").write_text("damaged")
    (folder / "tokenizer.json").unlink()
    edit(folder, window=0, name="", states=[])
    problems = problems_of(folder)
    assert any(line.startswith("step.onnx: SHA-256 is") for line in problems)
    assert "tokenizer.json: missing" in problems
    assert "window: 0 is not positive" in problems
    assert "name: must not be empty" in problems
    assert any("hidden is neither a state" in line for line in problems)


def test_wrong_types_and_keys_are_named_by_their_path(folder: Path) -> None:
    edit(
        folder,
        window="32",
        task="summarise",
        colour="blue",
        tokens={"pad": True},
        limits={"max_source_tokens": 1.5, "max_target_tokens": 32},
        states=[{"name": "x", "kind": "shrink", "shape": [1, None], "dtype": "float32"}],
    )
    problems = problems_of(folder)
    for expected in (
        "window: expected int, got str '32'",
        "task: 'summarise' is not one of translate, generate, transcribe, embed, classify,"
        " classify-tokens, fill-mask",
        "colour: unknown key",
        "tokens.pad: expected int, got bool True",
        "tokens.stop: missing",
        "limits.max_source_tokens: expected int, got float 1.5",
        "states[0].kind: 'shrink' is not one of append, replace, update, constant",
        "states[0].shape[1]: expected int or str, got NoneType None",
    ):
        assert expected in problems


def test_damaged_files_are_told_beside_a_damaged_manifest(folder: Path) -> None:
    (folder / "step.onnx").write_bytes(b"other")
    edit(folder, colour="blue")
    problems = problems_of(folder)
    assert "colour: unknown key" in problems
    assert any(line.startswith("step.onnx: SHA-256 is") for line in problems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "bundle.json: not valid JSON"),
        ("[1]", "the document: expected an object"),
        ("[" * 100_000, "bundle.json: not valid JSON"),
        ("\udcff", "bundle.json: not valid JSON"),
    ],
)
def test_a_manifest_that_is_no_object_is_one_problem(
    folder: Path, text: str, expected: str
) -> None:
    (folder / "bundle.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    (problem,) = problems_of(folder)
    assert problem.startswith(expected)


def test_missing_folder_manifest_and_version(folder: Path, tmp_path: Path) -> None:
    assert problems_of(tmp_path / "nowhere") == ["no such folder"]
    edit(folder, format_version=7)
    assert problems_of(folder) == [
        f"format_version: 7 is not supported, this version reads {FORMAT_VERSION}"
    ]
    (folder / "bundle.json").unlink()
    assert problems_of(folder) == ["bundle.json: missing"]


def test_the_graph_that_chooses_tokens_must_fit(folder: Path) -> None:
    graphs = json.loads((folder / "bundle.json").read_text())["graphs"]
    spec = select_graph(100).spec("encode.onnx")
    chooser = json.loads(json.dumps(asdict(spec)))
    edit(folder, graphs=graphs | {"select": chooser})
    open_bundle(folder)
    chooser["inputs"][0]["shape"] = ["batch", 99]
    del chooser["outputs"][2]
    edit(folder, graphs=graphs | {"select": chooser})
    assert [line for line in problems_of(folder) if "select" in line] == [
        "graphs.select.inputs: logp is missing, not known or not as expected",
        "graphs.select.outputs: is_dead is missing, not known or not as expected",
    ]


def test_states_must_agree_with_the_graphs(folder: Path) -> None:
    states = json.loads((folder / "bundle.json").read_text())["states"]
    states[0]["shape"] = [4, "length", 8]
    states[2]["name"] = "cell"
    edit(folder, states=states)
    problems = problems_of(folder)
    assert any(line.startswith("states.self_key.0: graphs.step.inputs has") for line in problems)
    assert "states.cell: cell is not among graphs.step.inputs" in problems
    assert "states.cell: cell.next is not among graphs.step.outputs" in problems


def test_files_stay_inside_the_folder(folder: Path) -> None:
    files = json.loads((folder / "bundle.json").read_text())["files"]
    edit(folder, files=files | {"../secret": "0" * 64})
    assert "files: '../secret' is not the name of a file in this folder" in problems_of(folder)


def test_a_bundle_may_do_without_attention(folder: Path) -> None:
    graphs = json.loads((folder / "bundle.json").read_text())["graphs"]
    del graphs["step_attention"]
    edit(folder, graphs=graphs)
    assert problems_of(folder) == ["alignment_heads: must be empty without a graph step_attention"]
    edit(folder, alignment_heads=[])
    assert open_bundle(folder).manifest.num_attention_heads == 0


@pytest.mark.parametrize("end", ["inputs", "outputs"])
def test_with_attention_the_step_is_the_same(folder: Path, end: str) -> None:
    graphs = json.loads((folder / "bundle.json").read_text())["graphs"]
    del graphs["step_attention"][end][0]
    edit(folder, graphs=graphs)
    assert problems_of(folder) == [
        "graphs.step_attention: inputs or outputs are not those of graphs.step and attention"
    ]


@pytest.mark.parametrize(
    ("shape", "heads", "expected"),
    [
        (["batch", 8], [0], "attention is float32 ['batch', 8], expected float32 [batch, heads, s"),
        (["batch", "heads", "source"], [0], "attention is float32 ['batch', 'heads', 'source'], e"),
        (["batch", 8, "source"], [], "alignment_heads: must not be empty with a graph step_att"),
        (["batch", 8, "source"], [7, 8, -1], "alignment_heads: 8 is not one of the 8 heads"),
    ],
)
def test_attention_has_heads_to_align_by(
    folder: Path, shape: list[Any], heads: list[int], expected: str
) -> None:
    graphs = json.loads((folder / "bundle.json").read_text())["graphs"]
    graphs["step_attention"]["outputs"][-1]["shape"] = shape
    edit(folder, graphs=graphs, alignment_heads=heads)
    assert expected in "\n".join(problems_of(folder))


def test_attention_must_be_there(folder: Path) -> None:
    graphs = json.loads((folder / "bundle.json").read_text())["graphs"]
    del graphs["step_attention"]["outputs"][-1]
    edit(folder, graphs=graphs)
    assert problems_of(folder) == ["graphs.step_attention.outputs: attention is missing"]


def test_token_ids_lie_in_the_vocabulary(folder: Path) -> None:
    tokens = json.loads((folder / "bundle.json").read_text())["tokens"]
    edit(folder, tokens=tokens | {"stop": [2, 100], "unk": 101}, window=101)
    assert problems_of(folder) == [
        "tokens: id 100 is outside the vocabulary of 100",
        "tokens: id 101 is outside the vocabulary of 100",
        "window: 101 is larger than the vocabulary of 100",
    ]
