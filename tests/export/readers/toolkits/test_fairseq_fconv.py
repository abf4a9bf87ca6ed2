"""fairseq's convolutional checkpoints give the scores and translations of its modules."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.export.readers.toolkits.comparing import (
    TOLERANCE,
    exported,
    largest_error,
    must_compute,
    problems_of,
    some_ids,
)
from tests.export.readers.toolkits.fairseq import EOS, change_saved, save
from tests.export.readers.toolkits.fconv import FConvModel
from tests.export.readers.toolkits.stateless import Stateless

NUM_SOURCE, NUM_TARGET = 40, 32
UNEVEN: dict[str, Any] = {  # as fconv_wmt_en_de, and not all layers attend
    "encoder_layers": "[(16, 3)] * 2 + [(24, 1)]",
    "decoder_layers": "[(16, 3)] + [(20, 2)] * 2 + [(24, 1)]",
    "decoder_attention": "[True, False, True, True]",
    "decoder_out_embed_dim": 8,
}
MODELS: list[dict[str, Any]] = [{}, UNEVEN, {"share_input_output_embed": True}]


def saved(folder: Path, changes: dict[str, Any]) -> tuple[FConvModel, Path]:
    torch.manual_seed(0)
    model = FConvModel(NUM_SOURCE, NUM_TARGET, **changes).eval()
    return model, save(model, folder, NUM_SOURCE, NUM_TARGET)


def changed(folder: Path, change: Any) -> Path:
    """A checkpoint that `change` has been at."""
    return change_saved(saved(folder, {})[1], change)


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_bundles_compute_what_the_modules_compute(tmp_path: Path, changes: dict[str, Any]) -> None:
    model, path = saved(tmp_path, changes)
    reference = Stateless(model, EOS, EOS, keeps_eos=True)
    must_compute(path, tmp_path / "bundle", reference, some_ids(6, 9, NUM_TARGET))


def test_models_before_the_second_version_have_lengths_of_places(tmp_path: Path) -> None:
    """`FConvDecoder.upgrade_state_dict`: decoders whose matrices were normalised along another
    axis; and what is saved for translation only, which is not normalised at all.
    """
    model, path = saved(tmp_path, {})
    tree = torch.load(path, weights_only=False)
    for number, convolution in enumerate(model.decoder.convolutions):
        lengths = convolution.weight_v.detach().flatten(1).norm(dim=1).mul(1.5).view(3, 1, 1)
        convolution.weight_g, convolution.dim = torch.nn.Parameter(lengths), 0
        tree["model"][f"decoder.convolutions.{number}.weight_g"] = lengths
    tree["model"]["decoder.version"] = torch.Tensor([1])
    for name in ("encoder.fc1", "encoder.convolutions.1"):
        weight = model.get_submodule(name).weight
        del tree["model"][f"{name}.weight_g"], tree["model"][f"{name}.weight_v"]
        tree["model"][f"{name}.weight"] = weight.detach()
    torch.save(tree, path)
    _, bundle = exported(path, tmp_path / "bundle")
    reference = Stateless(model, EOS, EOS, keeps_eos=True)
    assert largest_error(bundle, reference, some_ids(3, 9, NUM_TARGET)) < TOLERANCE


def test_other_residuals_are_refused_by_name(tmp_path: Path) -> None:
    layers = "[(16, 3, 1)] + [(16, 3, 2)]"
    path = changed(tmp_path, lambda tree: vars(tree["args"]).update(decoder_layers=layers))
    [problem] = problems_of(path)
    assert problem.startswith(f"options: decoder_layers {layers!r} must add")


def test_missing_misshapen_and_foreign_tensors_are_listed(tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        model = tree["model"]
        del model["encoder.fc1.weight_g"]
        model["decoder.fc2.weight_v"] = torch.zeros(12, 5)
        model["decoder.convolutions.1.weight_g"] = torch.zeros(1, 2, 1)
        model["decoder.fc9.bias"] = torch.zeros(4)

    assert sorted(problems_of(changed(tmp_path, change))) == [
        "decoder.convolutions.1.weight_g has shape [1, 2, 1], expected [1, 1, 32]",
        "decoder.fc2.weight_v has shape [12, 5], expected [12, 16]",
        "decoder.fc9.bias is not expected",
        "encoder.fc1.weight_g is missing",
    ]


CUT: dict[str, Any] = {
    "no convolutions": lambda model: [
        model.pop(name) for name in [*model] if "encoder.convolutions" in name
    ],
    "no readout": lambda model: [model.pop(name) for name in [*model] if "fc2" in name],
    "a flat convolution": lambda model: model.update(
        {"decoder.convolutions.0.weight_v": torch.zeros(16, 32)}
    ),
}


@pytest.mark.parametrize("change", CUT, ids=str)
def test_damaged_checkpoints(tmp_path: Path, change: str) -> None:
    assert problems_of(changed(tmp_path, lambda tree: CUT[change](tree["model"])))
