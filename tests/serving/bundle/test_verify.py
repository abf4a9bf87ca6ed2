"""A graph that scores several tokens of a row must be the step graph in all else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from serving.bundle.manifest import (
    VERIFY,
    GraphSpec,
    Manifest,
    Precision,
    StateKind,
    TensorSpec,
)
from serving.bundle.opening import open_bundle
from serving.bundle.validation import manifest_problems
from tests.tiny import tiny_bundle


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder: Path = tmp_path_factory.mktemp("bundle")
    return open_bundle(tiny_bundle("llama", folder, Precision.FP32)).manifest


def without(name: str) -> Callable[[tuple[TensorSpec, ...]], tuple[TensorSpec, ...]]:
    return lambda tensors: tuple(tensor for tensor in tensors if tensor.name != name)


def one_token(tensors: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    return (TensorSpec("ids", "int64", ("batch", 1)), *without("ids")(tensors))


def one_more(tensors: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    return (*tensors, TensorSpec("hint", "int64", ("batch",)))


@pytest.mark.parametrize(
    ("end", "change", "expected"),
    [
        ("inputs", one_token, "inputs: ids has shape ['batch', 1], expected [batch, 2 or more]"),
        ("inputs", without("ids"), "inputs: ids has shape [], expected [batch, 2 or more]"),
        ("inputs", one_more, "inputs: hint is not one of graphs.step"),
        ("outputs", without("logits"), "outputs: logits is missing or not as expected"),
        (
            "outputs",
            without("self_key.1.next"),
            "outputs: self_key.1.next is missing or not as expected",
        ),
    ],
)
def test_its_tensors_are_those_of_the_step(
    manifest: Manifest,
    end: str,
    change: Callable[[tuple[TensorSpec, ...]], tuple[TensorSpec, ...]],
    expected: str,
) -> None:
    graph = manifest.graphs[VERIFY]
    ends = {"inputs": graph.inputs, "outputs": graph.outputs}
    changed = GraphSpec(graph.file, **ends | {end: change(ends[end])})
    graphs = manifest.graphs | {VERIFY: changed}
    assert list(manifest_problems(replace(manifest, graphs=graphs))) == [
        f"graphs.{VERIFY}.{expected}"
    ]


def test_states_that_are_overwritten_cannot_be_taken_back(manifest: Manifest) -> None:
    first, *others = manifest.states
    states = (replace(first, kind=StateKind.REPLACE), *others)
    assert f"graphs.{VERIFY}: {first.name} cannot be taken back, it is no append state" in list(
        manifest_problems(replace(manifest, states=states))
    )
