"""A table finds, checks, turns and cuts out every weight of ours, and says what does not fit."""

import numpy as np
import pytest

from export.readers.common.weights import (
    Computed,
    Merged,
    Names,
    Shape,
    StoredTensors,
    Table,
    TensorReference,
    read_weights,
    scale_by,
    tensor_names,
)
from models.safetensors import Array, Stored

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)
VECTOR = np.arange(2, dtype=np.float32)


def tensors(problems: list[str], **arrays: Array) -> StoredTensors:
    """By name; a double underscore is a dot."""
    named = {name.replace("__", "."): array for name, array in arrays.items()}
    kinds = {"float32": "F32", "int32": "I32"}
    return StoredTensors(
        {
            name: Stored(kinds[array.dtype.name], array.shape, array.copy)
            for name, array in named.items()
        },
        problems,
    )


def read(shapes: dict[str, Shape], table: Table | Names, **arrays: Array) -> dict[str, Array]:
    problems: list[str] = []
    found = tensors(problems, **arrays)
    table = table if isinstance(table, Table) else Table(table)
    weights = read_weights(shapes, table, found)
    found.refuse_unused()
    assert problems == []
    return {name: reader() for name, reader in weights.items()}


def problems_of(shapes: dict[str, Shape], table: Table | Names, **arrays: Array) -> list[str]:
    problems: list[str] = []
    found = tensors(problems, **arrays)
    read_weights(shapes, table if isinstance(table, Table) else Table(table), found)
    found.refuse_unused()
    return problems


LINEAR: dict[str, Shape] = {"layers.0.up.weight": (2, 3), "layers.0.up.bias": (2,)}


def test_a_name_stands_for_weight_and_bias_of_every_layer() -> None:
    names = {"layers.*.up": "h.*.fc"}
    found = read(LINEAR, names, h__0__fc__weight=MATRIX, h__0__fc__bias=VECTOR)
    assert np.array_equal(found["layers.0.up.weight"], MATRIX)
    assert np.array_equal(found["layers.0.up.bias"], VECTOR)


def test_the_most_special_name_counts() -> None:
    names = {"layers.*.up": "h.*.fc", "layers.0.up.bias": "h.first"}
    assert read(LINEAR, names, h__0__fc__weight=MATRIX, h__first=VECTOR).keys() == LINEAR.keys()


def test_blanks_are_filled_with_their_words_and_layers_count_from_theirs() -> None:
    names = {"layers.*.up": TensorReference("l*_{}1", words=("W", "b"), is_transposed=True)}
    table = Table(names, first_layer=1, vectors_are_rows=True)
    found = read(LINEAR, table, l1_W1=MATRIX.T, l1_b1=VECTOR[None])
    assert np.array_equal(found["layers.0.up.weight"], MATRIX)
    assert np.array_equal(found["layers.0.up.bias"], VECTOR)


def test_of_several_names_the_first_that_is_there_counts() -> None:
    names = {"norm.weight": TensorReference(("old", "new"))}
    shapes: dict[str, Shape] = {"norm.weight": (2,)}
    assert np.array_equal(read(shapes, names, old=VECTOR)["norm.weight"], VECTOR)
    assert np.array_equal(read(shapes, names, new=VECTOR)["norm.weight"], VECTOR)
    assert problems_of(shapes, names) == ["new is missing"]


@pytest.mark.parametrize("axis", [0, 1])
def test_several_weights_are_cut_out_of_one(axis: int) -> None:
    parts = {"layers.*.gate": 1, "layers.*.up": 2}
    whole = np.arange(12, dtype=np.float32).reshape((3, 4) if axis == 0 else (4, 3))
    shapes: dict[str, Shape] = {
        f"{name.replace('*', '0')}.weight": (size, 4) if axis == 0 else (4, size)
        for name, size in parts.items()
    }
    found = read(
        shapes, {tuple(parts): TensorReference("h.*.both", axis=axis)}, h__0__both__weight=whole
    )
    assert np.array_equal(np.concatenate([*found.values()], axis), whole)
    assert [each.shape for each in found.values()] == [*shapes.values()]


def test_a_transposed_tensor_is_turned_and_changed_before_it_is_cut() -> None:
    shapes: dict[str, Shape] = {"a.weight": (1, 2), "b.weight": (2, 2)}
    held = TensorReference("both", is_transposed=True, change=lambda weight: weight[::-1])
    found = read(shapes, {("a", "b"): held}, both__weight=MATRIX)
    assert found["a.weight"].tolist() == [[2, 5]]
    assert found["b.weight"].tolist() == [[1, 4], [0, 3]]


def test_changes_are_made_to_weights_of_ours() -> None:
    table = Table(
        {"layers.*.up": "h.*"}, changes={"layers.*.up": scale_by(2), "layers.0.up": scale_by(3)}
    )
    found = read(LINEAR, table, h__0__weight=MATRIX, h__0__bias=VECTOR)
    assert np.array_equal(found["layers.0.up.bias"], VECTOR * 3)


def test_a_tensor_of_another_shape_is_cut_to_ours() -> None:
    names = {"positions": TensorReference("wpe", shape=(2, 3), change=lambda table: table[1:])}
    found = read({"positions.weight": (1, 3)}, names, wpe__weight=MATRIX)
    assert found["positions.weight"].tolist() == [[3, 4, 5]]


def test_made_weights_know_their_shape() -> None:
    found = read({"positions.weight": (2, 3)}, {"positions.weight": Computed(np.ones)})
    assert np.array_equal(found["positions.weight"], np.ones((2, 3)))


def test_base_models_are_saved_without_their_prefix() -> None:
    table = Table({"norm": "model.norm", "output": "head"}, prefix="model.")
    shapes: dict[str, Shape] = {"norm.weight": (2,), "output.weight": (2, 3)}
    assert read(shapes, table, norm__weight=VECTOR, head__weight=MATRIX).keys() == shapes.keys()


def test_every_problem_is_noted_once() -> None:
    shapes: dict[str, Shape] = {"a.weight": (2,), "b.weight": (2,), "c.weight": (3, 2)}
    names = {"a": "shared", "b": "shared", "c": "wide"}
    assert problems_of(shapes, names, wide__weight=MATRIX, more=VECTOR) == [
        "shared.weight is missing",
        "wide.weight has shape [2, 3], expected [3, 2]",
        "more is not expected",
    ]
    ints = VECTOR.astype(np.int32)
    found = problems_of({"a.weight": (2,)}, names, shared__weight=ints)
    assert found == ["shared.weight holds I32, which is not supported"]


def test_needless_tensors_are_no_problem() -> None:
    table = Table({"a": "x"}, ignored=(r".*\.inv_freq",))
    shapes: dict[str, Shape] = {"a.weight": (2,)}
    assert problems_of(shapes, table, x__weight=VECTOR, h__0__inv_freq=VECTOR) == []
    assert problems_of(shapes, table, x__weight=VECTOR, inv_freqs=VECTOR) != []


def test_what_the_file_calls_our_weights() -> None:
    table = Table({"a": "x", "made.weight": Computed(np.zeros), "layers.*.up": "h.*"})
    shapes: dict[str, Shape] = {"a.weight": (2,), "made.weight": (2,), **LINEAR}
    assert tensor_names(shapes, table, tensors([])) == {
        "a.weight": "x.weight",
        "layers.0.up.weight": "h.0.weight",
        "layers.0.up.bias": "h.0.bias",
    }


def test_rows_before_ours_are_skipped() -> None:
    found = read(
        {"positions.weight": (1, 3)},
        {"positions": TensorReference("e", skipped=1)},
        e__weight=MATRIX,
    )
    assert found["positions.weight"].tolist() == [[3, 4, 5]]


def test_files_may_repeat_a_shared_table_and_nothing_else() -> None:
    names = {"embedding": "embed", "output": "head", "up": "up"}
    shapes: dict[str, Shape] = {"embedding.weight": (2, 3), "up.weight": (2, 3)}
    arrays = {"embed__weight": MATRIX, "up__weight": MATRIX, "head__weight": MATRIX}
    assert problems_of(shapes, names, **arrays) == []
    found = problems_of(shapes, names, **arrays, up__bias=VECTOR)
    assert found == ["up.bias is not expected"]


def test_of_two_entries_the_later_one_counts() -> None:
    shapes: dict[str, Shape] = {"a.weight": (1, 3), "b.weight": (1, 3)}
    names: Names = {"a": "x", "b": "y", ("a", "b"): "both"}
    assert [*read(shapes, names, both__weight=MATRIX)] == ["a.weight", "b.weight"]


def test_one_weight_may_be_joined_of_several_tensors() -> None:
    joined = Merged({"h.*.lengths": (2, 1), "h.*.rows": (2, 3)}, lambda g, v: g * v)
    found = read(
        {"layers.0.up.weight": (2, 3)},
        {"layers.*.up.weight": joined},
        h__0__lengths=VECTOR[:, None],
        h__0__rows=MATRIX,
    )
    assert np.array_equal(found["layers.0.up.weight"], VECTOR[:, None] * MATRIX)


def test_what_is_joined_is_checked_part_by_part() -> None:
    joined = Merged({"g": (2, 1), "v": (2, 3)}, lambda g, v: g * v)
    names = {"up.weight": joined}
    assert problems_of({"up.weight": (2, 3)}, names, v=MATRIX.T) == [
        "g is missing",
        "v has shape [3, 2], expected [2, 3]",
    ]
