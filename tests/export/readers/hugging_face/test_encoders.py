"""Imported encoders compute what `transformers` computes, with pairs and padding."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedModel

from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from tests.export.readers.hugging_face.encoders import (
    FAMILIES,
    SPECIAL,
    kind_of,
    random_model,
    save,
    tokenizer_of,
)
from tests.export.texts import Text, encoded

PAIRS = [("abc de", "xyz"), ("q", "abcdefghi jkl mnopqrs"), ("one more text", "z z z z z z")]
TEXTS = ["abc", "a much longer text of many words", "q"]
LARGEST_ERROR = 1e-5


def imported(folder: Path, precision: Precision = Precision.FP32) -> Bundle:
    bundle = folder.parent / f"bundle-{precision}"
    export_checkpoint(read_model(folder), bundle, precision)
    return open_bundle(bundle)


def laid_out(bundle: Bundle, family: str, first: str, second: str | None = None) -> Text:
    """Put special tokens around texts as the manifest says, and segments as the engine has them."""
    manifest, tokenizer = bundle.manifest, tokenizer_of(family)
    tokenizer.no_truncation()
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in (first, second) if text]
    assert manifest.encoder is not None and manifest.encoder.separator is not None
    prefix, suffix = manifest.tokens.source_prefix, manifest.tokens.source_suffix
    if second is None:
        whole = [*prefix, *ids[0], *suffix]
        return whole, [0] * len(whole)
    before = [*prefix, *ids[0], *manifest.encoder.separator]
    after = [*ids[1], *suffix]
    return [*before, *after], [0] * len(before) + [1] * len(after)


@torch.inference_mode()
def of_transformers(model: PreTrainedModel, family: str, texts: list[Any]) -> Any:
    """Run the model on its own tokenizer's batch, padded."""
    tokenizer = tokenizer_of(family)
    tokenizer.no_truncation()
    pad = SPECIAL[kind_of(family)].index("[PAD]" if kind_of(family) == "bert" else "<pad>")
    tokenizer.enable_padding(pad_id=pad)
    batch = tokenizer.encode_batch(texts)
    given = {
        "input_ids": torch.tensor([each.ids for each in batch]),
        "attention_mask": torch.tensor([each.attention_mask for each in batch]),
    }
    if model.config.to_dict().get("type_vocab_size", 0) > 1 and family != "roberta":
        given["token_type_ids"] = torch.tensor([each.type_ids for each in batch])
    return model(**given), given["attention_mask"][..., None]


@pytest.mark.parametrize(
    ("family", "num_labels"),
    [(family, 1 + number % 3) for number, family in enumerate(FAMILIES)],
)
def test_classifiers_score_pairs_as_transformers_does(
    family: str, num_labels: int, tmp_path: Path
) -> None:
    model = random_model(family, num_labels)
    bundle = imported(save(model, tmp_path / "theirs"))
    found = encoded(bundle, [laid_out(bundle, family, *pair) for pair in PAIRS])["logits"]
    expected = of_transformers(model, family, PAIRS)[0].logits.numpy()
    assert found.shape == (3, num_labels)
    assert np.abs(found - expected).max() < LARGEST_ERROR
    spec = bundle.manifest.encoder
    names = model.config.id2label or {}
    assert spec is not None and spec.labels == tuple(names.values())
    assert spec.activation == ("sigmoid" if num_labels == 1 else "softmax")


@pytest.mark.parametrize("family", FAMILIES)
def test_without_more_said_tokens_are_averaged(family: str, tmp_path: Path) -> None:
    model = random_model(family)
    bundle = imported(save(model, tmp_path / "theirs"))
    found = encoded(bundle, [laid_out(bundle, family, text) for text in TEXTS])["embedding"]
    output, mask = of_transformers(model, family, TEXTS)
    expected = (output.last_hidden_state * mask).sum(1) / mask.sum(1)
    assert np.abs(found - expected.numpy()).max() < LARGEST_ERROR
    usable = 40 if kind_of(family) == "bert" else 38
    assert bundle.manifest.limits.max_source_tokens == usable


def test_the_tokenizer_neither_cuts_nor_pads(tmp_path: Path) -> None:
    bundle = imported(save(random_model("bert"), tmp_path / "theirs"))
    written = json.loads((bundle.folder / "tokenizer.json").read_text())
    assert written["truncation"] is None and written["padding"] is None
    assert written["decoder"]["cleanup"] is False


def test_the_words_of_older_files_are_known(tmp_path: Path) -> None:
    model = random_model("bert", 2)
    folder = save(model, tmp_path / "theirs")
    path = folder / "model.safetensors"
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): each
        for name, each in load_file(path).items()
    }
    positions = np.arange(40, dtype=np.int64)[None]
    save_file({**tensors, "bert.embeddings.position_ids": positions}, path)
    bundle = imported(folder)
    found = encoded(bundle, [laid_out(bundle, "bert", *pair) for pair in PAIRS])["logits"]
    expected = of_transformers(model, "bert", PAIRS)[0].logits.numpy()
    assert np.abs(found - expected).max() < LARGEST_ERROR


@pytest.mark.parametrize(
    ("options", "labels", "expected"),
    [
        ({"problem_type": "multi_label_classification"}, 2, "sigmoid"),
        ({"problem_type": "regression"}, 1, "none"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Identity"}}, 1, "none"),
        ({"sbert_ce_default_activation_function": "torch.nn.Sigmoid"}, 2, "sigmoid"),
        ({}, 2, "softmax"),
    ],
)
def test_scores_are_made_as_the_folder_says(
    options: dict[str, Any], labels: int, expected: str, tmp_path: Path
) -> None:
    folder = save(random_model("bert", labels), tmp_path)
    change(folder / "config.json", **options)
    assert read_model(folder).config.head.scores == expected  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"architectures": ["BertForQuestionAnswering"]}, "architectures ['BertForQuestionAn"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
        ({"hidden_act": "mish"}, "hidden_act 'mish' is not supported"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.ELU"}}, "activation 'torch.nn.ELU'"),
        ({"id2label": {"1": "x"}}, "id2label {'1': 'x'} does not count from 0 on"),
        ({"num_attention_heads": 5}, "d_model 32 must be a multiple of num_heads 5"),
        ({"vocab_size": 2**20}, "has shape [60, 32], expected [1048576, 32]"),
    ],
)
def test_what_cannot_be_read_is_said(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    folder = save(random_model("bert", 2), tmp_path)
    change(folder / "config.json", **options)
    with pytest.raises(CheckpointError) as caught:
        read_model(folder)
    assert any(problem in each for each in caught.value.problems), caught.value.problems


def test_a_vocabulary_without_tokenizer_json_is_enough(tmp_path: Path) -> None:
    """Its tokenizer then adds nothing around texts: what does is the family's."""
    whole = save(random_model("bert"), tmp_path / "whole")
    (tmp_path / "slow").mkdir()
    folder = save(random_model("bert"), tmp_path / "slow" / "theirs")
    (folder / "tokenizer.json").unlink()
    pieces = tokenizer_of("bert").get_vocab()
    (folder / "vocab.txt").write_text(
        "".join(f"{p}\n" for p in sorted(pieces, key=pieces.__getitem__))
    )
    one, other = imported(whole), imported(folder)
    assert other.manifest.tokens == one.manifest.tokens
    assert other.manifest.encoder == one.manifest.encoder


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_tokenizer_that_leaves_something_out_is_refused(tmp_path: Path) -> None:
    path = save(random_model("bert"), tmp_path) / "tokenizer.json"
    whole = json.loads(path.read_text())
    pair = [each for each in whole["post_processor"]["pair"] if "B" not in str(each)]
    for part, problem in (
        ({"post_processor": whole["post_processor"] | {"pair": pair}}, "no place for one of the"),
        ({"decoder": {"prefix": "##", "cleanup": True}}, "decoder None is not supported"),
    ):
        path.write_text(json.dumps(whole | part))
        with pytest.raises(CheckpointError) as caught:
            read_model(tmp_path)
        assert any(problem in each for each in caught.value.problems), caught.value.problems
