"""Sockeye's folders give the log-probabilities and translations of Sockeye's modules."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tokenizers import Tokenizer

from export.readers.reading import read_model
from tests.export.readers.toolkits.comparing import must_compute, problems_of, some_ids
from tests.export.readers.toolkits.sockeye import BOS, EOS, SPECIAL, SockeyeModel
from tests.export.readers.toolkits.stateless import Stateless

NUM_SOURCE, NUM_TARGET = 40, 32
POST = {"preprocess_sequence": "", "postprocess_sequence": "drn"}
MODELS: list[dict[str, Any]] = [
    {"tying": "src_trg_softmax"},
    {"tying": "trg_softmax", "use_glu": True, "act_type": "swish1", "num_layers": 1},
    {"tying": "none", "positional_embedding_type": "learned", "act_type": "gelu"} | POST,
    {"tying": "src_trg", "decoder_type": "ssru_transformer"},
]


def saved(folder: Path, changes: dict[str, Any]) -> SockeyeModel:
    torch.manual_seed(0)
    num_source = NUM_TARGET if changes["tying"].startswith("src_trg") else NUM_SOURCE
    model = SockeyeModel(num_source, NUM_TARGET, **changes).eval()
    torch.save(model.saved(), folder / "params.best")
    for side, number in (("src", num_source), ("trg", NUM_TARGET)):
        words = [*SPECIAL, *(f"w{i}" for i in range(number - 4))]
        ids = {word: token_id for token_id, word in enumerate(words)}
        (folder / f"vocab.{side}.0.json").write_text(json.dumps(ids))
    write_config(folder, model, {})
    return model


def write_config(folder: Path, model: SockeyeModel, decoder: dict[str, Any], **top: Any) -> None:
    """As sockeye/config.py writes it, with a tag for each class."""

    def section(name: str, options: dict[str, Any]) -> str:
        lines = yaml.safe_dump(options).splitlines()
        return f"!{name}\n" + "".join(f"  {line}\n" for line in lines)

    embedding = {"factor_configs": None, "num_embed": 32, "num_factors": 1}
    options = {"weight_tying_type": model.tying, "dtype": "float32", "lhuc": False} | top
    text = "!ModelConfig\n" + yaml.safe_dump(options)
    text += "config_encoder: " + section("TransformerConfig", model.config)
    text += "config_decoder: " + section("TransformerConfig", model.config | decoder)
    for side in ("source", "target"):
        text += f"config_embed_{side}: " + section("EmbeddingConfig", embedding)
    (folder / "config").write_text(text)


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_bundles_compute_what_the_modules_compute(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference = Stateless(saved(tmp_path, changes), BOS, EOS, keeps_eos=True)
    must_compute(tmp_path, tmp_path / "bundle", reference, some_ids(6, 9, NUM_TARGET))


def test_conventions_and_words(tmp_path: Path) -> None:
    saved(tmp_path, {"tying": "none"})
    checkpoint = read_model(tmp_path)
    around = checkpoint.conventions
    assert (around.source_suffix, around.prompt_prefix, around.stop) == ((EOS,), (BOS,), (EOS,))
    assert checkpoint.name == tmp_path.name
    assert Tokenizer.from_str(checkpoint.tokenizer).encode("w0 w35 nothing").ids == [4, 39, 1]
    assert read_model(tmp_path / "params.best").config == checkpoint.config


UNSUPPORTED: list[dict[str, Any]] = [
    {"use_lhuc": True},
    {"act_type": "mish"},
    {"attention_heads": 2},
    {"decoder_type": "rnn"},
    {"block_prepended_cross_attention": True},
    {"preprocess_sequence": "nr"},
]


@pytest.mark.parametrize("change", UNSUPPORTED, ids=str)
def test_what_is_not_supported_is_said_by_name_and_value(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    write_config(tmp_path, saved(tmp_path, {"tying": "none"}), change)
    [(name, value)] = change.items()
    assert any(f"{name} {value!r}" in problem for problem in problems_of(tmp_path))


def test_files_of_mxnet_are_refused_by_name(tmp_path: Path) -> None:
    saved(tmp_path, {"tying": "none"})
    (tmp_path / "params.best").write_bytes(b"\x12\x01\0\0\0\0\0\0" + bytes(100))
    [problem] = problems_of(tmp_path)
    assert problem == (
        "params.best is no file of torch: Sockeye 1 and 2 wrote MXNet's, which is not read"
    )


def test_missing_misshapen_and_foreign_tensors_are_listed(tmp_path: Path) -> None:
    state: dict[str, Any] = saved(tmp_path, {"tying": "none"}).saved()
    del state["decoder.layers.1.enc_attention.ff_q.weight"]
    state["encoder.layers.0.self_attention.ff_in.weight"] = torch.zeros(95, 32)
    state["decoder.layers.0.lhuc.weight"] = torch.zeros(32)
    torch.save(state, tmp_path / "params.best")
    assert sorted(problems_of(tmp_path)) == [
        "decoder.layers.0.lhuc.weight is not expected",
        "decoder.layers.1.enc_attention.ff_q.weight is missing",
        "encoder.layers.0.self_attention.ff_in.weight has shape [95, 32], expected [96, 32]",
    ]


DAMAGES: dict[str, Any] = {
    "no tensors": lambda folder: torch.save({}, folder / "params.best"),
    "no words": lambda folder: (folder / "vocab.src.0.json").unlink(),
    "too few words": lambda folder: (folder / "vocab.trg.0.json").write_text('{"<pad>": 0}'),
    "a list of words": lambda folder: (folder / "vocab.trg.0.json").write_text("[1]"),
    "other special words": lambda folder: (folder / "vocab.trg.0.json").write_text(
        json.dumps({f"w{i}": i for i in range(NUM_TARGET)})
    ),
    "no options": lambda folder: (folder / "config").write_text("!ModelConfig {}"),
    "no YAML": lambda folder: (folder / "config").write_text("a: [\n"),
}


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damaged_folders(tmp_path: Path, damage: str) -> None:
    saved(tmp_path, {"tying": "none"})
    DAMAGES[damage](tmp_path)
    assert problems_of(tmp_path)
