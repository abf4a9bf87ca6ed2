"""A run of seconds: five words in two languages, and a model of sixteen numbers a layer."""

from pathlib import Path

WORDS = [("one", "un"), ("two", "deux"), ("three", "trois"), ("cat", "chat"), ("dog", "chien")]
CONFIG = """
name = "toy"
[model]
architecture = "bahdanau"
vocab_size = 300
embedding_dim = 16
hidden_dim = 16
attention_dim = 16
readout_dim = 16
dropout = 0.0
[data]
train = ["train.tsv"]
dev = "dev.tsv"
test = "dev.tsv"
[optimizer]
name = "{optimizer}"
learning_rate = 0.02
warmup = 0.2
[run]
tokens_per_batch = 64
max_steps = {steps}
validations = {validations}
bleu_sentences = 4
precision = "{precision}"
label_smoothing = 0.0
"""


def write_data(folder: Path) -> None:
    lines = [f"toy\t{a} {b}\t{x} {y}" for a, x in WORDS for b, y in WORDS]
    (folder / "train.tsv").write_text("\n".join(lines * 2) + "\n")
    (folder / "dev.tsv").write_text("\n".join(lines[:6]) + "\n")


def write_config(
    folder: Path,
    steps: int,
    optimizer: str = "muon",
    precision: str = "fp32",
    validations: int | None = None,
) -> Path:
    """Without another wish it looks at its weights every six steps."""
    path = folder / "toy.toml"
    sizes = {"steps": steps, "validations": validations or max(1, steps // 6)}
    path.write_text(CONFIG.format(**sizes, optimizer=optimizer, precision=precision))
    return path
