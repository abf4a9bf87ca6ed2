"""Fresh weights: in every family a signal reaches the readout, and every gate has its own range."""

import pytest
import torch

from models.architectures.bahdanau.config import BahdanauConfig
from models.architectures.registry import parse_config
from models.batch import LanguageBatch, TranslationBatch
from models.checkpoint import load_checkpoint
from models.layers.roles import ParameterKind, ParameterRole, parameter_roles
from models.loading import build
from models.training.config import OptimizerConfig
from models.training.optimizer import Optimizer
from tests.models.training.test_recipes import MODELS
from tests.tiny import DECODERS

FAMILIES = [
    *({"architecture": name} for name in DECODERS),
    {"architecture": "luong", "cell": "gru", "num_layers": 1},
    {"architecture": "lstmn", "fusion": "shallow"},
    {"architecture": "sutskever", "num_layers": 3},
]
MATRIX, TABLE, VECTOR = (
    ParameterRole(ParameterKind.MATRIX),
    ParameterRole(ParameterKind.TABLE),
    ParameterRole(ParameterKind.VECTOR),
)


def fresh(**options):
    torch.manual_seed(0)
    return build(parse_config({"vocab_size": 500, "dropout": 0.0} | options)).eval()


@pytest.mark.parametrize("options", FAMILIES, ids=lambda options: str([*options.values()]))
@torch.inference_mode()
def test_fresh_readouts_are_of_a_size_to_learn_from(options) -> None:
    module = fresh(**options)
    ids, lengths = torch.randint(3, 500, (8, 12)), torch.full((8,), 12)
    translates = module.config.task == "translate"
    given = TranslationBatch(ids, ids, ids, lengths) if translates else LanguageBatch(ids, ids)
    deviation = float(module(given).std())
    assert 0.2 < deviation < 1.1


def test_every_gate_begins_in_the_range_of_a_matrix_of_its_own() -> None:
    module = fresh(architecture="bahdanau", embedding_dim=64, readout_dim=64, hidden_dim=64)
    for name in ("encoder.weight_ih_l0", "decoder.input.weight"):
        for gate in module.get_parameter(name).chunk(3):
            assert float(gate.detach().abs().max()) == pytest.approx((6 / 128) ** 0.5, rel=0.02)


@pytest.mark.parametrize("cell", ["gru", "lstm", "mut1"])
@torch.inference_mode()
def test_luongs_attention_begins_soft(cell: str) -> None:
    module = fresh(
        architecture="luong", cell=cell, embedding_dim=128, hidden_dim=256, readout_dim=128
    )
    state = module.encode(torch.randint(3, 500, (8, 12)), torch.full((8,), 12))
    hidden, _ = module.decoder(module.embed(torch.randint(3, 500, (8, 12))), state.cells)
    scores = module.attention.score(hidden, state.keys)
    assert 0.1 < float(scores.std()) < 1.0
    assert float(scores.softmax(-1).amax(-1).mean()) < 0.3


@pytest.mark.parametrize(("name", "most"), [("muon", 0.03), ("adamw", 0.3)])
def test_luongs_scores_do_not_jump(name: str, most: float) -> None:
    """At sixteen times the rate attention looked at single words after some steps, and for good."""
    dims = {"embedding_dim": 128, "hidden_dim": 256, "readout_dim": 128}
    module = fresh(architecture="luong", cell="gru", num_layers=1, **dims)
    config = OptimizerConfig.model_validate({"name": name, "learning_rate": 1e-3})
    optimizer = Optimizer(module, config, torch.float32)
    ids, lengths = torch.randint(3, 500, (8, 12)), torch.full((8,), 12)
    state = module.encode(ids, lengths)
    hidden, _ = module.decoder(module.embed(ids), state.cells)
    before = module.attention.score(hidden, state.keys)
    module(TranslationBatch(ids, ids, ids, lengths)).square().sum().backward()

    optimizer.step(1.0)

    after = module.attention.score(hidden, module.attention.score.keys(state.memory))
    assert 1e-4 < float((after - before).detach().abs().max()) < most


def test_an_ssru_begins_by_remembering() -> None:
    module = fresh(architecture="transformer-ssru")
    assert all((layer.recurrence.forget.bias >= 1).all() for layer in module.decoder.layers)


def test_trained_weights_keep_the_scale_they_were_trained_with() -> None:
    shipped = load_checkpoint(MODELS / "checkpoints/bahdanau-en-fr").config
    assert isinstance(shipped, BahdanauConfig)
    assert shipped.scale_of_embeddings == BahdanauConfig(vocab_size=9).scale_of_embeddings == 16.0
    assert BahdanauConfig(vocab_size=9, embedding_scale=1.0).scale_of_embeddings == 1.0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"architecture": "bahdanau"},
            {
                "embedding.weight": TABLE,
                "output_bias": VECTOR,
                "readout.embedding.weight": MATRIX,
                "readout.state.bias": VECTOR,
                "attention.score.weight": VECTOR,
                "encoder.weight_ih_l0_reverse": ParameterRole(ParameterKind.MATRIX, 3),
                "decoder.context.weight": ParameterRole(ParameterKind.MATRIX, 3),
            },
        ),
        (
            {"architecture": "lstmn", "fusion": "shallow", "tied_embeddings": False},
            {
                "output.weight": TABLE,
                "fusion.gates.weight": ParameterRole(ParameterKind.MATRIX, 4),
                "decoder.gates_recalled.weight": ParameterRole(ParameterKind.MATRIX, 4),
                "decoder.attention.score.weight": VECTOR,
            },
        ),
        (
            {"architecture": "luong", "hidden_dim": 64, "embedding_dim": 32, "readout_dim": 32},
            {
                "attention.score.key.weight": ParameterRole(ParameterKind.MATRIX, 1, 64**-0.5),
                "readout.weight": MATRIX,
            },
        ),
        (
            {"architecture": "luong", "score": "concat"},
            {"attention.score.key.weight": MATRIX, "attention.score.score.weight": VECTOR},
        ),
        (
            {"architecture": "gpt2"},
            {"positions.weight": TABLE, "layers.0.attention_norm.weight": VECTOR},
        ),
        (
            {"architecture": "convs2s"},
            {"encoder.positions": TABLE, "encoder.output.weight": MATRIX},
        ),
        (
            {"architecture": "recurrent-lm", "cell": "mut1"},
            {"recurrent.weight_hh_l0": ParameterRole(ParameterKind.MATRIX, 2)},
        ),
    ],
)
def test_a_parameter_is_learned_by_what_it_is_and_not_by_its_name(options, expected) -> None:
    parts = parameter_roles(fresh(**options))
    assert {name: parts[name] for name in expected} == expected
