"""fairseq's LSTMs give the log-probabilities and translations of its modules."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.export.readers.toolkits.comparing import must_compute, problems_of, some_ids
from tests.export.readers.toolkits.fairseq import EOS, change_saved, save
from tests.export.readers.toolkits.lstm import LSTMModel
from tests.export.readers.toolkits.stateless import Stateless

NUM_SOURCE, NUM_TARGET = 40, 32
SHARED = {"share_all_embeddings": True}
MODELS: list[dict[str, Any]] = [
    {"encoder_bidirectional": True},
    {"encoder_layers": 1, "decoder_layers": 1, "decoder_out_embed_dim": 8},
    {"encoder_bidirectional": True, "encoder_hidden_size": 8, "decoder_out_embed_dim": 12}
    | {"share_decoder_input_output_embed": True},
    SHARED | {"decoder_hidden_size": 12, "decoder_out_embed_dim": 12},
]


def saved(folder: Path, changes: dict[str, Any]) -> tuple[LSTMModel, Path]:
    torch.manual_seed(0)
    num_source = NUM_TARGET if changes.get("share_all_embeddings") else NUM_SOURCE
    model = LSTMModel(num_source, NUM_TARGET, **changes).eval()
    return model, save(model, folder, num_source, NUM_TARGET)


def changed(folder: Path, change: Any) -> Path:
    """A checkpoint that `change` has been at."""
    return change_saved(saved(folder, {})[1], change)


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_bundles_compute_what_the_modules_compute(tmp_path: Path, changes: dict[str, Any]) -> None:
    model, path = saved(tmp_path, changes)
    reference = Stateless(model, EOS, EOS, keeps_eos=True)
    must_compute(path, tmp_path / "bundle", reference, some_ids(6, 9, NUM_TARGET))


@pytest.mark.parametrize("change", [{"decoder_attention": "0"}, {"arch": "lstm_lm"}], ids=str)
def test_what_is_not_supported_is_said_by_name_and_value(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = changed(tmp_path, lambda tree: vars(tree["args"]).update(change))
    [(name, value)] = change.items()
    assert any(f"{name} {value!r}" in problem for problem in problems_of(path))


def test_missing_misshapen_and_foreign_tensors_are_listed(tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        model = tree["model"]
        del model["decoder.attention.input_proj.weight"]
        model["encoder.lstm.weight_hh_l1"] = torch.zeros(3, 3)
        model["decoder.layers.0.bias_hr"] = torch.zeros(4)

    assert sorted(problems_of(changed(tmp_path, change))) == [
        "decoder.attention.input_proj.weight is missing",
        "decoder.layers.0.bias_hr is not expected",
        "encoder.lstm.weight_hh_l1 has shape [3, 3], expected [64, 16]",
    ]
