"""An encoder learns to label texts, and says how well it does."""

import json
from pathlib import Path

import pytest

from models.checkpoint import load_checkpoint
from models.data.batching import LabelData
from models.data.corpus import SentencePair
from models.scores import LabelResult, LabelScore, tally
from models.training.config import read_config
from models.training.prepare import label_data
from models.training.trainer import Trainer
from tests.tiny import byte_tokenizer

CONFIG = """
name = "toy"
[model]
architecture = "{architecture}"
vocab_size = 300
dropout = 0.0
{sizes}
[model.head]
kind = "labels"
labels = ["animals", "numbers"]
dense = [{{ dim = 8 }}]
[data]
train = ["train.tsv"]
dev = "dev.tsv"
test = "dev.tsv"
[optimizer]
learning_rate = 0.02
warmup = 0.2
[run]
tokens_per_batch = 64
max_steps = 40
validations = 2
precision = "fp32"
label_smoothing = 0.0
"""
EMBEDDING = '[model.head]\nkind = "embedding"'
SIZES = {
    "rotary-encoder": "d_model = 16\nnum_heads = 2\nffn_dim = 24\nnum_layers = 1\n",
    "self-attentive": "embedding_dim = 16\nhidden_dim = 16\nattention_dim = 8\nnum_hops = 2",
    "transformer-encoder": "d_model = 16\nnum_heads = 2\nffn_dim = 24\nnum_layers = 1\n",
}
WORDS = {"animals": ("cat", "dog", "cow", "fox", "hen"), "numbers": ("one", "two", "six", "ten")}


def write(folder: Path, architecture: str) -> Path:
    lines = [
        f"{label}\t{first} {second}\tnothing"
        for label, words in WORDS.items()
        for first in words
        for second in words
    ]
    (folder / "train.tsv").write_text("\n".join(lines * 2) + "\n")
    (folder / "dev.tsv").write_text("\n".join(lines[::3]) + "\n")
    path = folder / "toy.toml"
    path.write_text(CONFIG.format(architecture=architecture, sizes=SIZES[architecture]))
    return path


@pytest.mark.parametrize("architecture", SIZES)
def test_labels_are_learned_and_the_card_says_how_well(architecture: str, tmp_path: Path) -> None:
    config = read_config(write(tmp_path, architecture))
    Trainer(config, tmp_path, tmp_path / "run").run()
    folder = tmp_path / "run" / "checkpoint"
    quality = json.loads((folder / "quality.json").read_text())
    assert quality["accuracy"] == 1.0
    assert [each["label"] for each in quality["labels"]] == ["animals", "numbers"]
    assert "100.0% of the texts get their label." in (folder / "README.md").read_text()
    assert (folder / "hops.png").exists() == (architecture == "self-attentive")
    conventions = load_checkpoint(folder).conventions
    assert (conventions.source_prefix, conventions.source_suffix) == ((1,), (2,))


def test_long_texts_are_cut_and_framed(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, "self-attentive"))
    model = config.model.model_copy(update={"max_source_tokens": 5})
    data = label_data(model, byte_tokenizer(), [SentencePair("numbers", "sixteen", "")])
    [row] = data.rows
    assert (len(row), row[0], row[-1], data.labels) == (5, 1, 2, [1])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (('"numbers"]', '"figures"]'), "texts are from numbers, of which the model has no label"),
        (('kind = "labels"\n', ""), "model.head needs kind"),
    ],
)
def test_what_cannot_be_learned_is_said(
    change: tuple[str, str], problem: str, tmp_path: Path
) -> None:
    path = write(tmp_path, "self-attentive")
    text = path.read_text().replace(*change)
    if not change[1]:  # another head, which has no labels
        text = text.replace('[model.head]\nlabels = ["animals", "numbers"]', EMBEDDING)
    path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        Trainer(read_config(path), tmp_path, tmp_path / "run")


def test_an_epoch_has_every_text_as_often_as_it_is_shown() -> None:
    rows = [[1, *[5] * length, 2] for length in range(20)]
    data = LabelData(rows, [0] * 20, None, None).with_repeats([2.0] * 10 + [0.0] * 10)  # type: ignore
    batches = data.epoch(0, 0, 48)
    assert sorted(i for batch in batches for i in batch) == sorted([*range(10)] * 2)
    assert all(len(batch) * max(len(rows[i]) for i in batch) <= 48 for batch in batches)


def test_scores_tell_what_is_found_and_what_is_right() -> None:
    result = tally(("a", "b"), [0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 0, 0])
    assert result == LabelResult((LabelScore("a", 4, 5, 3), LabelScore("b", 2, 1, 0)))
    assert result.accuracy == 0.5
    assert result.as_markdown().endswith("| a | 4 | 75.0% | 60.0% |\n| b | 2 | 0.0% | 0.0% |")
