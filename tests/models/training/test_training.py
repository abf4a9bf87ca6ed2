"""Training: it learns, goes on after a kill as if nothing had happened, leaves a checkpoint."""

import json

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.nn.functional import cross_entropy

from models.checkpoint import load_checkpoint
from models.cli import bench_torch, train
from models.data.batching import ParallelData
from models.data.bpe_dropout import VaryingData
from models.loading import load_module
from models.training.config import TrainingConfig, read_config
from models.training.learning import SmoothedCrossEntropy
from models.training.optimizer import Average, learning_rate_scale
from models.training.prepare import prepare
from models.training.trainer import Trainer
from models.training.validation import Validation
from tests.grid import full
from tests.models.training.toy_run import write_config, write_data


@pytest.fixture
def data(tmp_path):
    write_data(tmp_path)
    return tmp_path


class Killed(Exception):
    pass


def run_until(trainer: Trainer, step: int) -> None:
    """Run, and die in the middle of `step`."""
    learn = trainer._learn

    def dying(batch):
        if trainer.progress.step == step:
            raise Killed
        return learn(batch)

    trainer._learn = dying  # type: ignore[method-assign]
    with pytest.raises(Killed):
        trainer.run()


@pytest.mark.parametrize("optimizer", ["muon", *full(["adamw"])])
def test_a_killed_run_ends_like_one_that_was_not(data, optimizer: str) -> None:
    config = read_config(write_config(data, steps=18, optimizer=optimizer))
    Trainer(config, data, data / "whole").run()
    run_until(Trainer(config, data, data / "killed"), step=9)
    Trainer(config, data, data / "killed").run()
    whole, killed = (load_checkpoint(data / n / "checkpoint") for n in ("whole", "killed"))
    for name, weight in whole.weights.items():
        torch.testing.assert_close(weight, killed.weights[name], rtol=1e-3, atol=1e-4)
    rows = [json.loads(x) for x in (data / "killed/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [6, 12, 18]
    assert rows[-1]["dev_loss"] < rows[0]["dev_loss"]


def test_the_command_leaves_a_checkpoint_with_card_curve_and_quality(data) -> None:
    config = write_config(data, steps=12)
    result = CliRunner().invoke(train, [str(config), "--data", str(data), "-o", str(data / "run")])
    assert result.exit_code == 0, result.output
    folder = data / "run/checkpoint"
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    card = (folder / "README.md").read_text()
    assert "| toy | 6 |" in card
    assert "nrefs:1" in card
    assert json.loads((folder / "quality.json").read_text())["scores"][0]["sentences"] == 6
    assert load_checkpoint(folder).files["words.txt"] == b"cat\ndog\none\nthree\ntwo\n"
    assert load_module(load_checkpoint(folder)).config.architecture == "bahdanau"


def test_the_command_lists_every_problem(data) -> None:
    path = data / "bad.toml"
    path.write_text('name = "x"\nspeed = 1\n[model]\narchitecture = "gru"\n')
    result = CliRunner().invoke(train, [str(path), "--data", str(data)])
    assert result.exit_code == 2
    assert "speed" in result.output
    assert "architecture" in result.output
    assert "Traceback" not in result.output


def test_a_missing_data_file_is_one_line(data) -> None:
    config = write_config(data, steps=2)
    (data / "train.tsv").unlink()
    result = CliRunner().invoke(train, [str(config), "--data", str(data), "-o", str(data / "r")])
    assert result.exit_code == 2
    assert "train.tsv" in result.output


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_and_its_gradient_equal_torch(smoothing: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(150, 37, requires_grad=True)
    labels = torch.randint(0, 37, (150,))
    ours = SmoothedCrossEntropy.apply(logits, labels, smoothing)
    (gradient,) = torch.autograd.grad(ours, logits)
    reference = cross_entropy(logits, labels, label_smoothing=smoothing)
    torch.testing.assert_close(ours, reference)
    torch.testing.assert_close(gradient, torch.autograd.grad(reference, logits)[0])


def test_the_learning_rate_rises_for_a_share_of_the_run_and_falls_to_nothing() -> None:
    assert learning_rate_scale(0.01, 0.04) == pytest.approx(0.25 * 0.99)
    assert learning_rate_scale(0.04, 0.04) == pytest.approx(0.96)
    assert learning_rate_scale(0.75, 0.04) == pytest.approx(0.25)
    assert learning_rate_scale(1.0, 0.04) == 0.0


def test_weights_are_averaged_over_a_share_of_the_steps() -> None:
    module = nn.Linear(1, 1, bias=False)
    average = Average(module, share=0.1)
    for step in range(1, 1001):
        module.weight.data.fill_(step)
        average.update(step)
    with average.in_place():
        assert 850 < module.weight.item() < 950
    assert module.weight.item() == 1000


ENDING = "[data.ending]\nshare = 0.5\nrepeats = { teacher = 2.0 }\n"
DATA = 'distilled = "teacher.tsv"\nbpe_dropout = 0.1\naugment = { joined = 9 }\n'


def with_a_teacher(data) -> TrainingConfig:
    """Also all there is to say about data."""
    (data / "teacher.tsv").write_text("one cat\tun chat\ntwo cat\tdeux chat\n")
    path = write_config(data, steps=18)
    text = path.read_text().replace('test = "dev.tsv"\n', f'test = "dev.tsv"\n{DATA}{ENDING}')
    path.write_text(text)
    return read_config(path)


def test_a_run_learns_from_made_and_distilled_pairs_and_ends_on_what_is_named(data) -> None:
    prepared = prepare(with_a_teacher(data), data, data / "tokenizer.json")
    assert isinstance(prepared.train, VaryingData)
    assert isinstance(prepared.ending, ParallelData)
    origins = [pair.origin for pair in prepared.train.texts]
    assert {name: origins.count(name) for name in set(origins)} == {
        "toy": 50,
        "joined": 9,
        "teacher": 2,
    }
    assert [o for o, r in zip(origins, prepared.ending.repeats, strict=True) if r] == [
        "teacher",
        "teacher",
    ]


def test_what_a_teacher_makes_of_names_says_nothing_of_them(data) -> None:
    """A name that targets write otherwise is known; a teacher that copies it changes nothing."""
    config = with_a_teacher(data)
    corpus = (data / "train.tsv").read_text()
    (data / "train.tsv").write_text(corpus + "toy\tone Ann\tun Anne\n" * 5)
    (data / "teacher.tsv").write_text("one Ann\tun Ann\n" * 90)
    assert "Ann" in prepare(config, data, data / "tokenizer.json").words


def test_typos_and_invented_names_are_no_known_words(data) -> None:
    path = write_config(data, steps=6)
    corpus = (data / "train.tsv").read_text()
    (data / "train.tsv").write_text(corpus + "toy\tone Ann\tun Anne\ntoy\ttwo Tim\tdeux Tim\n" * 5)
    for kinds in ("", "[data.augment]\nnoise = 400\nnames = 400\n"):
        path.write_text(path.read_text().replace("[optimizer]", f"{kinds}[optimizer]"))
        prepared = prepare(read_config(path), data, data / "tokenizer.json")
        assert prepared.words == ["Ann", "cat", "dog", "one", "three", "two"]
    assert isinstance(prepared.train, ParallelData)
    assert len(prepared.train.sources) > 500


@pytest.mark.parametrize("step", [12, *full([9])])
def test_a_run_killed_around_the_ending_ends_like_one_that_was_not(data, step: int) -> None:
    config = with_a_teacher(data)
    Trainer(config, data, data / "whole").run()
    run_until(Trainer(config, data, data / "killed"), step)
    Trainer(config, data, data / "killed").run()
    whole, killed = (load_checkpoint(data / n / "checkpoint") for n in ("whole", "killed"))
    for name, weight in whole.weights.items():
        torch.testing.assert_close(weight, killed.weights[name], rtol=1e-3, atol=1e-4)


def test_what_is_kept_is_what_did_best(data, monkeypatch) -> None:
    path = write_config(data, steps=18)
    path.write_text(path.read_text() + 'choose_by = "bleu"\n')
    trainer = Trainer(read_config(path), data, data / "run")
    results = iter([Validation(3.0, 10.0), Validation(2.0, 30.0), Validation(1.0, 20.0)])
    kept = []
    monkeypatch.setattr("models.training.trainer.validate", lambda *_: next(results))
    monkeypatch.setattr(trainer.files, "keep_best", lambda _: kept.append(trainer.progress.step))
    with pytest.raises(FileNotFoundError):
        trainer.run()
    assert kept == [6, 12]


def test_bleu_is_of_the_origins_that_are_named(data) -> None:
    path = write_config(data, steps=18)
    dev = (data / "dev.tsv").read_text()
    (data / "dev.tsv").write_text(dev + dev.replace("toy", "book"))
    config = path.read_text()
    for origins, actual in (("", {"book", "toy"}), ('bleu_origins = ["book"]\n', {"book"})):
        path.write_text(config.replace("bleu_sentences = 4", "bleu_sentences = 12") + origins)
        pairs = prepare(read_config(path), data, data / "tokenizer.json").pairs
        assert {pair.origin for pair in pairs} == actual
    path.write_text(config + 'bleu_origins = ["film"]\n')
    with pytest.raises(ValueError, match=r"film.*only book, toy"):
        prepare(read_config(path), data, data / "tokenizer.json")


@pytest.mark.parametrize("order", [[], ["--by-length"]])
def test_the_torch_loop_is_measured(data, order: list[str]) -> None:
    config = write_config(data, steps=2)
    Trainer(read_config(config), data, data / "run").run()
    arguments = [str(data / "run/checkpoint"), "--input", "-", "--requests", "3", "--batch", "2"]
    result = CliRunner().invoke(bench_torch, arguments + order, input="one two\n\ncat dog\n")
    assert result.exit_code == 0, result.output
    speed = json.loads(result.output)
    assert speed["sentences"] == 3
    assert speed["tokens_per_second"] > 0
