"""Imported folders of Sentence Transformers give the vectors and scores that it gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from serving.text.tokenizer import Tokenizer
from tests.export.readers.hugging_face.encoders import random_model, save
from tests.export.readers.hugging_face.test_encoders import PAIRS, TEXTS, imported
from tests.export.texts import encoded

LARGEST_ERROR = 1e-5
MARKS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


def transformers_folder(folder: Path, num_labels: int = 0) -> Path:
    save(random_model("bert", num_labels), folder)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 40, **MARKS}
    config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def saved(folder: Path, *modules: Any, **options: Any) -> tuple[SentenceTransformer, Path]:
    """Make a model of modules after a Transformer, and save it."""
    first = Transformer(str(transformers_folder(folder / "transformer")), max_seq_length=20)
    model = SentenceTransformer(modules=[first, *modules], device="cpu", **options)
    model.save(str(folder / "theirs"), create_model_card=False)
    return model, folder / "theirs"


POOLINGS = ["cls", "max", "mean", "mean_sqrt_len_tokens", "lasttoken"]
MODULES: list[list[Any]] = [
    [Pooling(32, "mean"), Normalize()],
    [Pooling(32, POOLINGS)],
    [Pooling(32, "cls"), Dense(32, 24), Dense(24, 9, bias=False, activation_function=nn.GELU())],
    [Pooling(32, ["max", "lasttoken"]), Dense(64, 7, activation_function=None), Normalize()],
]


@pytest.mark.parametrize("modules", MODULES)
def test_embeddings_are_those_of_sentence_transformers(modules: list[Any], tmp_path: Path) -> None:
    model, folder = saved(tmp_path, *modules)
    texts = [*TEXTS, "longer than it reads " * 9]
    bundle = imported(folder)
    manifest = bundle.manifest
    assert manifest.limits.max_source_tokens == 20
    ids = Tokenizer(bundle.folder / "tokenizer.json", manifest.vocab_size).encode_batch(texts)
    prefix, suffix = manifest.tokens.source_prefix, manifest.tokens.source_suffix
    rows = [[*prefix, *each[: 20 - len(prefix + suffix)], *suffix] for each in ids]
    found = encoded(bundle, [(row, [0] * len(row)) for row in rows])["embedding"]
    assert np.abs(found - model.encode(texts)).max() < LARGEST_ERROR


def test_the_words_of_older_files_for_pooling_are_known(tmp_path: Path) -> None:
    _, folder = saved(tmp_path, Pooling(32, "cls"))
    [pooling] = folder.glob("1_*/config.json")
    old = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    old |= {"pooling_mode_cls_token": False, "pooling_mode_max_tokens": True}
    pooling.write_text(json.dumps(old))
    assert read_model(folder).config.pooling == ("max", "mean")  # type: ignore[union-attr]


def test_prompts_are_taken_over(tmp_path: Path) -> None:
    prompts = {"query": "query: ", "document": "passage: "}
    _, folder = saved(tmp_path, Pooling(32), prompts=prompts, default_prompt_name="document")
    spec = imported(folder).manifest.encoder
    assert spec is not None and spec.prompts == prompts and spec.default_prompt == "document"


def test_letters_become_small_where_the_folder_says_so(tmp_path: Path) -> None:
    _, folder = saved(tmp_path, Pooling(32))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    bundle = imported(folder)
    small = Tokenizer(bundle.folder / "tokenizer.json", bundle.manifest.vocab_size)
    assert small.encode("ABC de") == small.encode("abc de")


def test_rerankers_score_as_cross_encoders_do(tmp_path: Path) -> None:
    transformers_folder(tmp_path / "transformer", num_labels=1)
    model = CrossEncoder(str(tmp_path / "transformer"), device="cpu", activation_fn=nn.Identity())
    model.save_pretrained(str(tmp_path / "theirs"), create_model_card=False)
    bundle = imported(tmp_path / "theirs")
    spec, tokens = bundle.manifest.encoder, bundle.manifest.tokens
    assert spec is not None and spec.separator is not None and spec.activation == "none"
    tokenizer = Tokenizer(bundle.folder / "tokenizer.json", bundle.manifest.vocab_size)
    texts = []
    for first, second in PAIRS:
        before = [*tokens.source_prefix, *tokenizer.encode(first), *spec.separator]
        after = [*tokenizer.encode(second), *tokens.source_suffix]
        texts.append(([*before, *after], [0] * len(before) + [1] * len(after)))
    found = encoded(bundle, texts)["logits"][:, 0]
    assert np.abs(found - model.predict(PAIRS)).max() < LARGEST_ERROR


@pytest.mark.parametrize(
    ("module", "changes", "problem"),
    [
        (1, {"pooling_mode": "weightedmean"}, "pooling 'weightedmean' is not supported"),
        (1, {"include_prompt": False}, "include_prompt False is not supported"),
        (2, {"activation_function": "torch.nn.SELU"}, "activation_function 'torch.nn.SELU'"),
        (2, {"use_residual": True}, "use_residual True is not supported"),
        (2, {"out_features": 12}, "2_Dense: linear.weight has shape [24, 32], expected [12, 32]"),
        (2, {"in_features": "x"}, "in_features 'x' must be int"),
    ],
)
def test_modules_that_cannot_be_read_are_named(
    module: int, changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    _, folder = saved(tmp_path, Pooling(32), Dense(32, 24))
    [path] = folder.glob(f"{module}_*/config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(CheckpointError) as caught:
        read_model(folder)
    assert any(problem in each for each in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    "listed",
    [
        [],
        {},
        [3],
        [{"type": "Transformer", "path": "../x"}],
        [{"type": "x.Transformer", "path": ""}, {"type": "x.CNN", "path": "1_CNN"}],
        [{"type": "x.StaticEmbedding", "path": ""}],
    ],
)
def test_other_modules_are_refused(listed: Any, tmp_path: Path) -> None:
    folder = transformers_folder(tmp_path)
    (folder / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match=r"modules\.json"):
        read_model(folder)


def test_other_vectors_of_tokens_are_noted(tmp_path: Path) -> None:
    """As BGE-M3 has heads for them beside its dense vectors."""
    _, folder = saved(tmp_path, Pooling(32, "cls"), Normalize())
    assert not any("is not read" in note for note in read_model(folder).notes)
    for name in ("colbert_linear.pt", "sparse_linear.pt"):
        torch.save(nn.Linear(32, 1).state_dict(), folder / name)
    found = read_model(folder)
    notes = [note for note in found.notes if "is not read" in note]
    assert [note.split()[0] for note in notes] == ["colbert_linear.pt", "sparse_linear.pt"]
