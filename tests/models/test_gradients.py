"""How far back losses reach: what is known of gradients, and the command that draws them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from models.architectures.registry import parse_config
from models.batch import LanguageBatch, TranslationBatch
from models.cli import plot_gradients
from models.gradients import Reach, gradient_norms
from models.loading import build
from tests.tiny import tiny_checkpoint

WORDS = {"vocab_size": 40, "embedding_dim": 8, "hidden_dim": 8}
READOUT = {"readout_dim": 8}
TRANSLATORS: list[dict[str, Any]] = [
    {"architecture": "cho", **WORDS, **READOUT},
    {"architecture": "bahdanau", **WORDS, **READOUT, "tied_embeddings": False},
    {"architecture": "lstmn", **WORDS, **READOUT},
    {"architecture": "transformer", "vocab_size": 40, "d_model": 8, "num_heads": 2, "ffn_dim": 8},
]
LENGTH = 12


def module_of(config: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return build(parse_config(config)).eval()


def prose(rows: int) -> LanguageBatch:
    ids = torch.randint(3, 40, (rows, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    return LanguageBatch(ids[:, :-1], ids[:, 1:])


@torch.no_grad()
def halving() -> Any:
    """Nearly linear, as its inputs are small, and a step keeps half of what was."""
    module = module_of({"architecture": "recurrent-lm", "cell": "rnn", **WORDS})
    module.recurrent.weight_hh_l0.copy_(torch.eye(8) / 2)
    module.embedding.weight.mul_(1e-3)
    return module


def test_a_recurrent_weight_of_a_half_halves_the_gradient_each_step() -> None:
    for norms in gradient_norms(halving(), prose(2)):
        assert len(norms) == LENGTH
        for near, far in pairwise(norms):
            assert far / near == pytest.approx(0.5, rel=1e-3)


def test_nothing_comes_from_beyond_a_window() -> None:
    sizes = {"vocab_size": 40, "d_model": 8, "num_layers": 1, "num_heads": 2, "ffn_dim": 8}
    module = module_of({"architecture": "llama", **sizes, "window": 4})
    [norms] = gradient_norms(module, prose(1))
    assert all(norms[:4])
    assert not any(norms[4:])


@pytest.mark.parametrize("config", TRANSLATORS, ids=lambda config: config["architecture"])
def test_rows_have_the_gradients_that_they_have_alone(config: dict[str, Any]) -> None:
    """Padding is no part of a text; the source stands before the target."""
    module, random = module_of(config), torch.Generator().manual_seed(0)
    source, target, labels = (torch.randint(3, 40, (3, n), generator=random) for n in (6, 4, 4))
    labels[1, 2:] = -100
    lengths = torch.tensor([6, 2, 4])
    actual = list(gradient_norms(module, TranslationBatch(target, labels, source, lengths)))
    alone = []
    for row, (length, end) in enumerate(zip(lengths, (4, 2, 4), strict=True)):
        texts = target[row : row + 1, :end], labels[row : row + 1, :end]
        one = TranslationBatch(*texts, source[row : row + 1, :length], lengths[row : row + 1])
        alone += list(gradient_norms(module, one))
    assert sorted(map(len, alone)) == [3, 4, 5, 6, 7, 7, 8, 8, 9, 10]
    for norms, others in zip(sorted(actual, key=str), sorted(alone, key=str), strict=True):
        assert norms == pytest.approx(others, rel=1e-3, abs=1e-7)


def test_it_is_said_from_where_a_gradient_stays_faint() -> None:
    assert str(Reach("gru", [1.0, 0.05, 0.2, 0.09, 0.02])) == (
        "gru: under 0.1 from distance 3 on, under 0.01 at no distance to 4"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reach")
    for name in ("recurrent-lm", "llama", "bahdanau", "transformer-encoder"):
        tiny_checkpoint(name, folder / name / "checkpoint")
    (folder / "prose.txt").write_text("The street was too tired to cross the animal. " * 9)
    (folder / "pairs.tsv").write_text("a dog\tun chien\ntwo cats sleep\tdeux chats dorment\n")
    return folder


def plot(folder: Path, *names: str, text: str = "prose.txt", picture: str = "reach.svg") -> Any:
    paths = [str(folder / name / "checkpoint") for name in names]
    options = ["--text", str(folder / text), "-o", str(folder / picture), "--tokens", "20"]
    return CliRunner().invoke(plot_gradients, [*paths, *options, "--texts", "3"])


def test_the_command_draws_a_line_for_each_model(folder: Path) -> None:
    result = plot(folder, "recurrent-lm", "llama")
    assert result.exit_code == 0, result.output
    assert [line.split(": under 0.1 ")[0] for line in result.output.splitlines()] == [
        "recurrent-lm",
        "llama",
    ]
    picture = (folder / "reach.svg").read_text()
    assert ">recurrent-lm</text>" in picture
    assert ">llama</text>" in picture
    plot(folder, "recurrent-lm", "llama")
    assert (folder / "reach.svg").read_text() == picture


def test_translators_read_pairs(folder: Path) -> None:
    result = plot(folder, "bahdanau", text="pairs.tsv", picture="reach.png")
    assert result.exit_code == 0, result.output
    assert (folder / "reach.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("names", "changes", "message"),
    [
        (["llama", "bahdanau"], {}, "draw each kind by itself"),
        (["llama"], {"picture": "reach.gif"}, "must end with one of .pdf, .png, .svg"),
        (["llama"], {"text": "short.txt"}, "holds too little text"),
        (["bahdanau"], {}, "there is no tab"),
        (["transformer-encoder"], {}, "only encodes"),
        (["bert"], {}, "there is no such folder"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    folder: Path, names: list[str], changes: dict[str, str], message: str
) -> None:
    (folder / "short.txt").write_text("a dog")
    result = plot(folder, *names, **changes)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
