"""An encoder learns masked words, says how many bits they cost, and fills masks once exported."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from export.bundling.writer import export_checkpoint
from models.architectures.transformer_encoder.config import TransformerEncoderConfig
from models.batch import IGNORED_LABEL
from models.checkpoint import load_checkpoint
from models.configs.base import MaskedWordHead
from models.data.batching import MaskedProse
from models.training.config import TrainingConfigError, read_config
from models.training.trainer import Trainer
from serving.bundle.manifest import Precision
from serving.engine.config import EngineConfig
from serving.pipelines.jobs import EncodeJob, MaskedWord
from serving.pipelines.loading import load_model

CONFIG = """
name = "toy"
[model]
architecture = "transformer-encoder"
vocab_size = 290
d_model = 32
num_heads = 2
ffn_dim = 48
num_layers = 1
max_source_tokens = 24
dropout = 0.0
[model.head]
kind = "masked-words"
[data]
train = ["prose.txt"]
held_out = 0.25
[optimizer]
learning_rate = 0.01
[run]
tokens_per_batch = 480
max_steps = 80
validations = 2
precision = "fp32"
label_smoothing = 0.0
"""
HEAD = MaskedWordHead(mask_id=3)


def write(folder: Path) -> Path:
    """Write a recipe, and prose of documents that say one word again and again."""
    documents = [f" {word}" * 150 for word in ("dog", "cat", "cow", "hen") * 4]
    (folder / "prose.txt").write_text("\n".join(documents) + "\n")
    (folder / "toy.toml").write_text(CONFIG)
    return folder / "toy.toml"


async def filled(bundle: Path, text: str) -> MaskedWord:
    loaded = load_model(bundle, EngineConfig(slots=4, threads=1))
    try:
        actual = await loaded.pipeline.run(EncodeJob("job", (text,), top_k=1))
    finally:
        await loaded.engine.shutdown()
    [[[word]]] = actual.masked_words
    return word


def test_masked_words_are_learned_and_filled(tmp_path: Path) -> None:
    trainer = Trainer(read_config(write(tmp_path)), tmp_path, tmp_path / "run")
    trainer.run()
    losses = [row["dev_loss"] for row in trainer.files.rows()]
    assert len(losses) == 2 and losses[-1] < 1
    checkpoint = tmp_path / "run" / "checkpoint"
    quality = json.loads((checkpoint / "quality.json").read_text())
    bits = min(losses) / np.log(2)
    assert quality["bits_per_masked_word"] == pytest.approx(bits, abs=0.02)
    assert quality["accuracy"] > 0.7 and quality["documents"] == 4
    card = (checkpoint / "README.md").read_text()
    assert "bits per masked word" in card and "nats a masked word" in card
    text = " cow cow cow<mask> cow cow"
    export_checkpoint(load_checkpoint(checkpoint), tmp_path / "bundle", Precision.INT8)
    word = asyncio.run(filled(tmp_path / "bundle", text))
    assert word.token_str == " cow" and word.sequence == text.replace("<mask>", " cow")


def test_most_chosen_words_are_masked_some_replaced_some_kept() -> None:
    config = TransformerEncoderConfig(vocab_size=50, max_source_tokens=64, head=HEAD)
    words = np.random.default_rng(0).integers(0, 50, 40_000)
    data = MaskedProse(words, config, HEAD, masked_share=0.3)
    batches, again = ([data.batch(part) for part in data.epoch(1, 2, 640)] for _ in range(2))
    assert all((a.input_ids == b.input_ids).all() for a, b in zip(batches, again, strict=True))
    ids, labels = (
        np.concatenate([getattr(batch, name).numpy() for batch in batches])
        for name in ("input_ids", "labels")
    )
    assert ids.shape[1] == 64 and (ids[:, 0] == 1).all() and (ids[:, -1] == 2).all()
    is_chosen = labels != IGNORED_LABEL
    assert not np.isin(labels[is_chosen], [0, 1, 2, 3]).any()
    assert is_chosen[:, 1:-1].mean() == pytest.approx(0.3 * 46 / 50, abs=0.01)
    given, wanted = ids[is_chosen], labels[is_chosen]
    assert (given == 3).mean() == pytest.approx(0.8, abs=0.02)
    assert (given == wanted).mean() == pytest.approx(0.1 + 0.1 / 46, abs=0.02)
    assert not np.array_equal(data.batch(data.epoch(1, 3, 640)[0]).labels, batches[0].labels)


def test_a_mask_with_another_id_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(CONFIG.replace('"masked-words"', '"masked-words"\nmask_id = 7'))
    with pytest.raises(ValueError, match="mask_id: <mask> has the id 3, not 7"):
        Trainer(read_config(path), tmp_path, tmp_path / "run")


def test_a_share_of_masked_words_needs_a_head_of_them(tmp_path: Path) -> None:
    path = write(tmp_path)
    text = CONFIG.replace("[data]", "[data]\nmasked_share = 0.3")
    path.write_text(text)
    assert read_config(path).data.masked_share == 0.3
    path.write_text(text.replace('"masked-words"', '"embedding"'))
    with pytest.raises(
        TrainingConfigError, match="masked_share: only a model of masked words has it"
    ):
        read_config(path)


def test_texts_that_are_too_short_are_refused(tmp_path: Path) -> None:
    """There would be nothing to read, and training would look for it for ever."""
    path = write(tmp_path)
    path.write_text(CONFIG.replace("max_source_tokens = 24", "max_source_tokens = 2"))
    with pytest.raises(
        TrainingConfigError, match="max_source_tokens 2 leaves no room for a masked word"
    ):
        read_config(path)
    path.write_text(CONFIG.replace("max_source_tokens = 24", "max_source_tokens = 30000"))
    with pytest.raises(ValueError, match="tokens of prose are too few for one text"):
        Trainer(read_config(path), tmp_path, tmp_path / "run")
    path.write_text(CONFIG.replace("max_source_tokens = 24", "max_source_tokens = 3"))
    trainer = Trainer(read_config(path), tmp_path, tmp_path / "run")
    batch = trainer.data.train.batch(trainer.data.train.epoch(0, 0, 3)[0])
    assert batch.input_ids.shape == (1, 3)
