"""Cells, layers of them and the recurrent encoder-decoders equal plain loops of their equations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundling.running import GraphRows
from models.architectures.registry import ModelConfigError, parse_config
from models.batch import TranslationBatch
from models.layers.equations import CELLS
from models.layers.recurrent import Recurrent, RecurrentCell, reverse
from models.loading import build
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.parity import examples_of, largest_error
from tests.grid import in_turns
from tests.models.architectures import plain_recurrent as plain
from tests.tiny import tiny_bundle

LENGTHS = [6, 1, 4]
SMALL: dict[str, Any] = {"vocab_size": 30, "embedding_dim": 6, "hidden_dim": 5, "readout_dim": 6}
APART: dict[str, Any] = {"tied_embeddings": False, "readout_dim": 4}
VARIANTS: list[dict[str, Any]] = [
    {"architecture": "cho"},
    {"architecture": "cho", **APART},
    {"architecture": "sutskever", "num_layers": 1},
    {"architecture": "sutskever", "num_layers": 3, "reversed_source": True},
    {"architecture": "sutskever", "num_layers": 2, **APART},
    {"architecture": "bahdanau", "attention_dim": 7},
    {"architecture": "bahdanau", "attention_dim": 3, "readout": "tanh"},
    {"architecture": "bahdanau", "readout": "tanh", **APART},
    {"architecture": "bahdanau", "attention_dim": 4, "score": "dot"},
    {"architecture": "bahdanau", "attention_dim": 3, "score": "scaled-dot"},
    {"architecture": "bahdanau", "attention_dim": 7, "hard_attention": True},
]


def loud(module: torch.nn.Module) -> Any:
    """In float64, every weight and bias drawn: none is zero or hides another."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return module.double().eval()


def arrays_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("cell", CELLS)
@torch.inference_mode()
def test_layers_over_padded_rows_equal_plain_loops(cell: str) -> None:
    module = loud(Recurrent(cell, 4, 5, num_layers=2, bidirectional=True))
    x = torch.randn(3, 6, 4).double()
    outputs, last = module(x, torch.tensor(LENGTHS))
    arrays = {f"rnn.{name}": array for name, array in arrays_of(module).items()}
    model = plain.Model(parse_config({"architecture": "cho", **SMALL, "cell": cell}), arrays)
    for row, length in enumerate(LENGTHS):
        xs = list(x[row, :length].numpy())
        for layer in range(2):
            forward = model.read(xs, model.layer("rnn", f"l{layer}"))
            backward = model.read(xs[::-1], model.layer("rnn", f"l{layer}_reverse"))
            for direction, states in enumerate((forward, backward)):
                for part, array in zip(last[2 * layer + direction], states[-1], strict=True):
                    np.testing.assert_allclose(part[row], array, rtol=1e-9)
            pairs = zip(forward, backward[::-1], strict=True)
            xs = [np.concatenate([f[0], b[0]]) for f, b in pairs]
        np.testing.assert_allclose(outputs[row, :length], xs, rtol=1e-9)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@torch.inference_mode()
def test_layers_equal_those_of_torch_by_the_same_names(cell: str) -> None:
    module = loud(Recurrent(cell, 4, 5, num_layers=2, bidirectional=True))
    kind = getattr(torch.nn, cell.upper())
    reference = kind(4, 5, 2, batch_first=True, bidirectional=True).double()
    reference.load_state_dict(module.state_dict())
    x = torch.randn(3, 6, 4).double()
    torch.testing.assert_close(module(x)[0], reference(x)[0])


@pytest.mark.parametrize("cell", CELLS)
@torch.inference_mode()
def test_steps_go_on_where_a_sequence_ended(cell: str) -> None:
    module = loud(Recurrent(cell, 4, 5, num_layers=2))
    x = torch.randn(2, 6, 4).double()
    whole, _ = module(x)
    _, states = module(x[:, :2])
    rest, _ = module(x[:, 2:], initial=states)
    torch.testing.assert_close(rest, whole[:, 2:])
    for position in range(2, 6):
        output, states = module(x[:, position : position + 1], initial=states)
        torch.testing.assert_close(output[:, 0], whole[:, position])


def test_rows_are_reversed_up_to_their_own_end() -> None:
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 0, 0, 0]])
    assert reverse(ids, torch.tensor([4, 2, 1])).tolist() == [
        [4, 3, 2, 1],
        [6, 5, 0, 0],
        [7, 0, 0, 0],
    ]


@pytest.mark.parametrize(("variant", "cell"), in_turns(VARIANTS, CELLS))
@torch.inference_mode()
def test_families_equal_plain_loops(variant: dict[str, Any], cell: str) -> None:
    config = parse_config({**SMALL, **variant, "cell": cell})
    module = loud(build(config))
    source, target = torch.randint(3, 30, (3, 6)), torch.randint(3, 30, (3, 4))
    actual = module.project(module(TranslationBatch(target, target, source, torch.tensor(LENGTHS))))
    model = plain.Model(config, arrays_of(module))
    for row, length in enumerate(LENGTHS):
        expected = plain.FAMILIES[config.architecture](
            model, source[row, :length].tolist(), target[row].tolist()
        )
        np.testing.assert_allclose(actual[row], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("variant", "cell"), in_turns(VARIANTS, CELLS, first=1))
@torch.inference_mode()
def test_steps_of_families_equal_the_whole(variant: dict[str, Any], cell: str) -> None:
    module = loud(build(parse_config({**SMALL, **variant, "cell": cell})))
    source, lengths = torch.randint(3, 30, (3, 6)), torch.tensor(LENGTHS)
    target = torch.randint(3, 30, (3, 4))
    whole = module(TranslationBatch(target, target, source, lengths))
    state = module.encode(source, lengths)
    for position in range(4):
        readout, state = module.step(target[:, position], state)
        torch.testing.assert_close(readout, whole[:, position])


@pytest.mark.parametrize("architecture", ["bahdanau", "cho"])
@torch.no_grad()
def test_an_lstm_begins_with_open_forget_gates_and_orthogonal_blocks(architecture: str) -> None:
    module: Any = build(parse_config({"architecture": architecture, **SMALL, "cell": "lstm"}))
    assert isinstance(module.decoder, RecurrentCell)
    for weight, bias in (
        (module.decoder.hidden.weight, module.decoder.input.bias),
        (module.encoder.weight_hh_l0, module.encoder.bias_ih_l0),
    ):
        for block in weight.chunk(4):
            torch.testing.assert_close(block @ block.T, torch.eye(5))
        assert bias.tolist() == [0.0] * 5 + [1.0] * 5 + [0.0] * 10


def test_everything_wrong_with_a_recurrent_configuration_is_said() -> None:
    wrong = {"readout_dim": 7, "cell": "mut4", "num_layers": 2}
    with pytest.raises(ModelConfigError) as caught:
        parse_config({"architecture": "cho", **SMALL, **wrong})
    assert len(caught.value.problems) == 3
    text = "\n".join(caught.value.problems)
    for word in ("mut4", "readout_dim 7", "num_layers"):
        assert word in text


ODD: dict[str, Any] = {"hidden_dim": 17, "embedding_dim": 11, "readout_dim": 11}
GRAPH_APART: dict[str, Any] = {"tied_embeddings": False, "readout_dim": 20}
NEMATUS: dict[str, Any] = {"layer_norm": "none", "encoder_layers": 1, "decoder_layers": 1}
NEMATUS_DEEP: dict[str, Any] = {"encoder": "bidirectional-first", "encoder_layers": 3}
GRAPH_VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("cho", ODD),
    ("cho", GRAPH_APART),
    ("sutskever", {"num_layers": 3, "reversed_source": False, **ODD}),
    ("sutskever", {"num_layers": 1, **GRAPH_APART}),
    ("bahdanau", {"readout": "tanh", "attention_dim": 9, **ODD}),
    ("bahdanau", GRAPH_APART),
    ("bahdanau", {"score": "dot", "attention_dim": 9}),
    ("bahdanau", {"score": "scaled-dot", "hard_attention": True}),
    ("nematus", NEMATUS | {"decoder_transitions": 2, "skip": False}),
    ("nematus", {"cell": "lstm", "encoder_transitions": 2, "encoder": "alternating"}),
    ("nematus", NEMATUS_DEEP | {"layer_norm": "gates", "hidden_dim": 17}),
    ("nematus", {"cell": "rnn", "higher_transitions": 2, "source_vocab_size": 400} | GRAPH_APART),
]


@pytest.mark.parametrize(("cell", "family"), in_turns(CELLS, ["bahdanau", "cho", "sutskever"]))
def test_log_probabilities_are_those_of_torch(tmp_path: Path, family: str, cell: str) -> None:
    bundle = tiny_bundle(family, tmp_path, Precision.FP32, cell=cell)
    assert largest_error(bundle, tmp_path / family, examples_of(family)) < 2e-5


@pytest.mark.parametrize(("family", "changes"), GRAPH_VARIANTS)
def test_options_are_those_of_torch(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle(family, tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / family, examples_of(family)) < 2e-5


@pytest.mark.parametrize(("cell", "precision"), in_turns(CELLS, [Precision.FP16, Precision.INT8]))
def test_int8_and_fp16_are_near(tmp_path: Path, cell: str, precision: Precision) -> None:
    bundle = tiny_bundle("bahdanau", tmp_path, precision, cell=cell)
    assert_errs_by_rounding(bundle, tmp_path / "bahdanau", examples_of("bahdanau"))


def test_a_reversed_source_is_read_up_to_its_own_end(tmp_path: Path) -> None:
    """The same as a source reversed by hand without the option."""
    sources = [[30, 31, 32, 33, 2], [40, 2], [50, 51, 2]]
    states = []
    for is_reversed, given in ((True, sources), (False, [each[::-1] for each in sources])):
        folder = tmp_path / str(is_reversed)
        bundle = tiny_bundle("sutskever", folder, Precision.FP32, reversed_source=is_reversed)
        states.append(GraphRows(open_bundle(bundle), given).states)
    for name, array in states[0].items():
        assert np.array_equal(array, states[1][name]), name


@pytest.mark.parametrize("family", ["cho", "sutskever"])
def test_fixed_contexts_have_no_attention_to_tell_of(tmp_path: Path, family: str) -> None:
    manifest = open_bundle(tiny_bundle(family, tmp_path, Precision.INT8)).manifest
    assert set(manifest.graphs) == {"encode", "step"}
    assert manifest.alignment_heads == ()
