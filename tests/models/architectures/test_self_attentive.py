"""The graphs of the self-attentive sentence embedding compute what its module computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundling.running import TextGraph
from export.graph.writer import Array
from models.architectures.registry import parse_config
from models.batch import LabelBatch
from models.checkpoint import load_checkpoint
from models.decoding import vectors_of
from models.loading import build, load_encoder
from serving.bundle.manifest import AttentionKind, AttentionShape, Precision
from serving.bundle.opening import open_bundle
from tests.export.graph.widening import widened
from tests.export.texts import encoded, random_texts
from tests.tiny import tiny_bundle

TEXTS = random_texts((17, 1, 40, 6))
LABELS = {"kind": "labels", "labels": ["a", "b"], "dense": [{"dim": 11, "activation": "relu"}]}


def of_torch(folder: Path) -> Array:
    ids, types = map(list, zip(*TEXTS, strict=True))
    return np.stack(vectors_of(load_encoder(load_checkpoint(folder)), ids, types))


@pytest.mark.parametrize("options", [{}, {"cell": "gru", "head": LABELS}, {"cell": "mut1"}])
def test_both_graphs_compute_what_torch_computes(options: dict[str, Any], tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("self-attentive", tmp_path, Precision.FP32, **options))
    output = "logits" if options.get("head") else "embedding"
    actual = encoded(bundle, TEXTS)
    assert np.abs(actual[output] - of_torch(tmp_path / "self-attentive")).max() < 1e-5
    rows, types = map(list, zip(*TEXTS, strict=True))
    plain = TextGraph(bundle).run(rows, types)
    assert np.array_equal(plain[output], actual[output])


def test_hops_are_shares_of_a_texts_own_words(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("self-attentive", tmp_path, Precision.FP32))
    assert bundle.manifest.attention_shapes == {AttentionKind.HOPS: AttentionShape(1, 1)}
    [attention] = encoded(bundle, TEXTS)["hops"].swapaxes(0, 1)
    assert attention.shape == (4, 3, 40)
    assert np.allclose(attention.sum(-1), 1)
    for hops, (ids, _) in zip(attention, TEXTS, strict=True):
        assert not hops[:, len(ids) :].any()
    module = load_encoder(load_checkpoint(tmp_path / "self-attentive"))
    ids = torch.tensor([TEXTS[0][0]])
    with torch.inference_mode():
        expected = module.hops(ids, torch.tensor([17]))
    assert expected is not None
    assert np.abs(attention[0][:, :17] - expected[0].numpy()).max() < 1e-6


def test_other_precisions_err_by_rounding(tmp_path: Path) -> None:
    actual = {
        precision: open_bundle(tiny_bundle("self-attentive", tmp_path, precision))
        for precision in (Precision.FP16, Precision.BF16, Precision.INT8)
    }
    wide = widened(actual[Precision.BF16].folder, tmp_path / "wide")
    actual[Precision.BF16] = open_bundle(wide)
    expected = of_torch(tmp_path / "self-attentive")
    for bundle in actual.values():
        assert np.abs(encoded(bundle, TEXTS)["embedding"] - expected).max() < 0.02


def test_the_penalty_adds_its_gradient_and_nothing_else() -> None:
    torch.manual_seed(0)
    sizes = {"embedding_dim": 6, "hidden_dim": 5, "attention_dim": 7, "dropout": 0.0}
    options = {"architecture": "self-attentive", "vocab_size": 30, "num_hops": 3, "head": LABELS}
    ids, lengths = torch.randint(3, 30, (4, 9)), torch.tensor([9, 2, 5, 7])
    batch = LabelBatch(ids, torch.zeros(4, 1, dtype=torch.long), lengths)

    def gradients(penalty: float, by_hand: float) -> list[torch.Tensor]:
        torch.manual_seed(1)
        module = build(parse_config(options | sizes | {"penalty": penalty})).train()
        loss = module.project(module(batch)).square().mean()
        weights = module.hops(ids, lengths)
        overlap = weights @ weights.transpose(1, 2) - torch.eye(3)
        (loss + by_hand * overlap.square().sum((1, 2)).mean()).backward()
        return [each.grad.clone() for each in module.parameters()]

    ours, expected, without = gradients(0.7, 0.0), gradients(0.0, 0.7), gradients(0.0, 0.0)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, expected, strict=True))
    assert not all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, without, strict=True))


def test_the_penalty_is_computed_where_products_are_in_16_bits() -> None:
    sizes = {"embedding_dim": 6, "hidden_dim": 5, "attention_dim": 7, "head": LABELS}
    options = {"architecture": "self-attentive", "vocab_size": 30, "num_hops": 3}
    module = build(parse_config(options | sizes)).train()
    ids, lengths = torch.randint(3, 30, (4, 9)), torch.tensor([9, 2, 5, 7])
    with torch.autocast("cpu", torch.bfloat16):
        logits = module.project(module(LabelBatch(ids, ids[:, :1], lengths)))
    logits.float().square().mean().backward()
    assert all(each.grad.isfinite().all() for each in module.parameters())
