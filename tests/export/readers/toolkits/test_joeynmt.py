"""JoeyNMT's folders give the log-probabilities and translations of JoeyNMT's modules."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tokenizers import Tokenizer

from export.readers.reading import read_model
from models.configs.base import TranslationModelConfig
from tests.export.readers.toolkits.comparing import must_compute, problems_of, some_ids
from tests.export.readers.toolkits.joeynmt import BOS, EOS, RECURRENT, TRANSFORMER, Model
from tests.export.readers.toolkits.stateless import Stateless

NUM_SOURCE, NUM_TARGET = 40, 32
LSTM = {"rnn_type": "lstm", "num_layers": 2}
SHARED = {"tied_embeddings": True, "tied_softmax": True}
POST = {"layer_norm": "post", "activation": "gelu"}


def changed(cfg: Mapping[str, Any], encoder: Any = (), decoder: Any = (), **top: Any) -> Any:
    """A configuration with other options."""
    found = {"encoder": dict(cfg["encoder"], **dict(encoder))}
    return found | {"decoder": dict(cfg["decoder"], **dict(decoder)), **top}


MODELS: dict[str, Any] = {
    "gru, bahdanau": RECURRENT,
    "lstm, luong, last": changed(
        RECURRENT, LSTM, LSTM | {"attention": "luong", "init_hidden": "last", "hidden_size": 16}
    ),
    "zeros, no feeding, tied softmax": changed(
        RECURRENT,
        decoder={"init_hidden": "zero", "input_feeding": False, "hidden_size": 12},
        tied_softmax=True,
    ),
    "pre-norm, all tied": TRANSFORMER | SHARED,
    "post-norm": changed(TRANSFORMER, POST, POST | {"num_layers": 1}),
}


def vocabulary(number: int) -> list[str]:
    return ["<unk>", "<pad>", "<s>", "</s>", *(f"w{i}" for i in range(number - 4))]


def saved(folder: Path, cfg: dict[str, Any]) -> Model:
    torch.manual_seed(0)
    num_source = NUM_TARGET if cfg.get("tied_embeddings") else NUM_SOURCE
    model = Model(cfg, num_source, NUM_TARGET).eval()
    for side, number in (("src", num_source), ("trg", NUM_TARGET)):
        (folder / f"{side}_vocab.txt").write_text("\n".join(vocabulary(number)) + "\n")
    text = {"level": "word", "lowercase": False, "tokenizer_cfg": {"pretokenizer": "none"}}
    data = {"src": {"lang": "de", **text}, "trg": {"lang": "en", **text}}
    testing = {"beam_size": 5, "max_output_length": 40}
    config: Any = deepcopy({"name": "toy", "data": data, "testing": testing, "model": cfg})
    config["model"]["decoder"] = deepcopy(cfg["decoder"])  # no part of it stands for two
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    state = {"model_state": model.state_dict(), "optimizer_state": {}, "stats_state": {"steps": 5}}
    torch.save(state, folder / "15.ckpt")
    (folder / "best.ckpt").symlink_to("15.ckpt")
    torch.save({}, folder / "30.ckpt")
    return model


@pytest.mark.parametrize("cfg", MODELS.values(), ids=MODELS)
def test_bundles_compute_what_the_modules_compute(tmp_path: Path, cfg: dict[str, Any]) -> None:
    reference = Stateless(saved(tmp_path, cfg), BOS, EOS, keeps_eos=True)
    must_compute(tmp_path, tmp_path / "bundle", reference, some_ids(6, 9, NUM_TARGET))


def test_conventions_and_words(tmp_path: Path) -> None:
    saved(tmp_path, RECURRENT)
    checkpoint = read_model(tmp_path)
    around = checkpoint.conventions
    assert (around.source_suffix, around.prompt_prefix, around.stop) == ((EOS,), (BOS,), (EOS,))
    assert around.generation == {"num_beams": 5, "max_new_tokens": 40}
    assert checkpoint.name == tmp_path.name
    assert isinstance(checkpoint.config, TranslationModelConfig)
    assert checkpoint.config.source_languages == ("de",)
    assert checkpoint.config.target_languages == ("en",)
    assert Tokenizer.from_str(checkpoint.tokenizer).encode("w0 w35 nothing").ids == [4, 39, 0]
    assert read_model(tmp_path / "15.ckpt").config == checkpoint.config


def rewrite(folder: Path, *path: str, **options: Any) -> None:
    """Give a section of the configuration other options."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    section = config
    for name in path:
        section = section[name]
    section.update(options)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


UNSUPPORTED: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("model", "encoder"), {"type": "convolutional"}),
    (("model", "encoder"), {"bidirectional": False}),
    (("model", "encoder"), {"rnn_type": "sru"}),
    (("model", "decoder"), {"type": "transformer"}),
    (("model", "decoder"), {"attention": "dot"}),
    (("model", "decoder"), {"init_hidden": "mean"}),
    (("model", "decoder"), {"activation": "relu"}),
    (("model", "decoder"), {"input_feeding": "yes"}),
    (("data", "src"), {"lowercase": True}),
    (("data", "trg"), {"level": "char"}),
    (("data", "trg", "tokenizer_cfg"), {"pretokenizer": "moses"}),
]


@pytest.mark.parametrize(("path", "change"), UNSUPPORTED, ids=str)
def test_what_is_not_supported_is_said_by_name_and_value(
    tmp_path: Path, path: tuple[str, ...], change: dict[str, Any]
) -> None:
    saved(tmp_path, RECURRENT)
    rewrite(tmp_path, *path, **change)
    [(name, value)] = change.items()
    assert any(f"{name} {value!r}" in problem for problem in problems_of(tmp_path))


TRANSFORMERS: list[tuple[str, dict[str, Any]]] = [
    ("decoder", {"layer_norm": "post"}),
    ("decoder", {"num_heads": 2}),
    ("encoder", {"alpha": 2.0}),
    ("encoder", {"activation": "selu"}),
]


@pytest.mark.parametrize(("stack", "change"), TRANSFORMERS, ids=str)
def test_what_is_not_supported_in_transformers_is_said(
    tmp_path: Path, stack: str, change: dict[str, Any]
) -> None:
    saved(tmp_path, TRANSFORMER)
    rewrite(tmp_path, "model", stack, **change)
    [(name, value)] = change.items()
    assert any(f"{name} {value!r}" in problem for problem in problems_of(tmp_path))


def test_version_1_says_nothing_of_norms(tmp_path: Path) -> None:
    """It knew them before the sublayers only; version 2 does, where nothing is said, otherwise."""
    saved(tmp_path, TRANSFORMER)
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    for stack in config["model"].values():
        del stack["layer_norm"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    expected = read_model(tmp_path).config
    rewrite(tmp_path, "model", "encoder", layer_norm="pre")
    assert read_model(tmp_path).config == expected


def test_missing_misshapen_and_foreign_tensors_are_listed(tmp_path: Path) -> None:
    model = saved(tmp_path, RECURRENT)
    state: dict[str, Any] = dict(model.state_dict())
    del state["decoder.bridge_layer.bias"]
    state["encoder.rnn.bias_ih_l0"] = torch.zeros(5)
    state["decoder.coverage.weight"] = torch.zeros(2, 2)
    torch.save({"model_state": state}, tmp_path / "15.ckpt")
    assert sorted(problems_of(tmp_path)) == [
        "decoder.bridge_layer.bias is missing",
        "decoder.coverage.weight is not expected",
        "encoder.rnn.bias_ih_l0 has shape [5], expected [48]",
    ]


DAMAGES: dict[str, Any] = {
    "no model_state": lambda folder: torch.save({"step": 3}, folder / "15.ckpt"),
    "no tensors": lambda folder: torch.save({"model_state": {}}, folder / "15.ckpt"),
    "no words": lambda folder: (folder / "src_vocab.txt").unlink(),
    "too few words": lambda folder: (folder / "trg_vocab.txt").write_text("<unk>\n<pad>\n"),
    "a word twice": lambda folder: (folder / "trg_vocab.txt").write_text(
        "\n".join([*vocabulary(NUM_TARGET - 1), "w1"])
    ),
    "no YAML": lambda folder: (folder / "config.yaml").write_text("a: [\n"),
    "a list": lambda folder: (folder / "config.yaml").write_text("- a\n"),
}


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damaged_folders(tmp_path: Path, damage: str) -> None:
    saved(tmp_path, RECURRENT)
    DAMAGES[damage](tmp_path)
    assert problems_of(tmp_path)


@pytest.mark.parametrize(
    ("data", "split_tokens"),
    [
        ({}, None),
        ({"src": {"max_length": 62}}, 62),
        ({"src": {"max_length": 100}}, None),  # as where nothing is said
        ({"src": {"max_length": -1}}, None),
        ({"trg": {"max_length": 62}}, None),
        ({"src": "de", "trg": "en", "max_sent_length": 50}, 50),  # version 1
        ({"src": "de", "trg": "en", "max_sent_length": 300}, None),
    ],
)
def test_the_longest_sentence_is_that_of_the_training(
    tmp_path: Path, data: dict[str, Any], split_tokens: int | None
) -> None:
    saved(tmp_path, TRANSFORMER)
    for side, options in data.items():
        if isinstance(options, dict):
            rewrite(tmp_path, "data", side, **options)
        else:
            rewrite(tmp_path, "data", **{side: options})
    config = read_model(tmp_path).config
    assert isinstance(config, TranslationModelConfig)
    assert config.split_tokens == split_tokens
