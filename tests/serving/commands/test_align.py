"""`attendant align`: the numbers it draws are the engine's; what cannot be drawn is said."""

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from export.bundling.writer import export_checkpoint
from export.graph.model import ExportedModel
from models.architectures.bahdanau import graph
from serving.bundle.manifest import Precision
from serving.cli import main
from tests.tiny import tiny_bundle, tiny_checkpoint

SENTENCE = "A dog, l'été."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def bahdanau(folder: Path) -> str:
    return str(tiny_bundle("bahdanau", folder, Precision.INT8))


@pytest.fixture(scope="module")
def transformer(folder: Path) -> str:
    """Its translations are letters, as it happens."""
    return str(tiny_bundle("transformer", folder, Precision.INT8, seed=10))


@pytest.fixture(scope="module")
def without_attention(folder: Path) -> str:
    """Return a bundle of which no graph gives attention, as those of fixed-context models."""
    build = graph.build

    def plain(*args: Any) -> ExportedModel:
        model = build(*args)
        graphs = tuple(each for each in model.graphs if each.name != "step_attention")
        return ExportedModel(graphs, model.states, model.limits)

    checkpoint, bundle = tiny_checkpoint("bahdanau", folder / "checkpoint"), folder / "plain"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "build", plain)
        export_checkpoint(checkpoint, bundle, Precision.FP32, name="bahdanau")
    return str(bundle)


def align(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["align", *arguments])


def told(*arguments: str) -> dict[str, Any]:
    result = align(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_picture_and_its_numbers(transformer: str, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"map.{suffix}"

    answer = told("--model", transformer, SENTENCE, "-o", str(path))

    assert path.stat().st_size > 1000
    [found] = answer["attention"]
    assert found["source_words"] == ["A", "dog", ",", "l'", "été", ".", ""]
    weights = np.array(found["word_weights"])
    assert weights.shape == (len(found["target_words"]), 7)
    assert np.allclose(weights.sum(axis=1), 1, atol=1e-5)
    # The model is random: it also writes single bytes, which are no characters.
    tokens = [token for token in found["target_tokens"] if not token.startswith("bytes:")]
    assert "".join(tokens).strip() == answer["translation"].replace("\ufffd", "")


def test_the_translation_is_that_of_translate(transformer: str) -> None:
    for beam in ([], ["--beam", "3"]):
        lines = CliRunner().invoke(
            main, ["translate", "--no-protect", "--model", transformer, *beam], SENTENCE
        )
        assert told("--model", transformer, SENTENCE, *beam)["translation"] == lines.stdout


def test_a_given_translation(transformer: str) -> None:
    own = told("--model", transformer, SENTENCE)

    given = told("--model", transformer, SENTENCE, "--translation", "Un chien, été.")

    assert given["translation"] == "Un chien, été."
    assert given["attention"][0]["target_words"] == ["Un", "chien", ",", "été", "."]
    begun = told("--model", transformer, SENTENCE, "--translation", own["translation"][:4])
    assert begun["attention"][0]["weights"] == own["attention"][0]["weights"][:4]


def test_heads_by_themselves_and_their_mean(transformer: str, tmp_path: Path) -> None:
    given = ["--model", transformer, SENTENCE, "--translation", "Un."]
    weights = [
        np.array(found["weights"])
        for found in told(*given, "--all-heads", "-o", str(tmp_path / "heads.svg"))["attention"]
    ]

    heads = told(*given, "--all-heads")["attention"]
    mean = told(*given, "--head", "1", "--head", "6")["attention"]
    [one] = told(*given, "--head", "6")["attention"]

    assert [found["head"] for found in heads] == list(range(8))
    assert len(mean) == 1 and "head" not in mean[0] and one["head"] == 6
    assert np.allclose(mean[0]["weights"], (weights[1] + weights[6]) / 2, atol=1e-6)
    assert np.allclose(one["weights"], weights[6])
    picture = (tmp_path / "heads.svg").read_text()
    assert all(f"<!-- head {head} -->" in picture for head in range(8))


def test_pieces(bahdanau: str, tmp_path: Path) -> None:
    path = tmp_path / "map.svg"

    result = align("--model", bahdanau, "A b.", "--translation", "d e", "--pieces", "-o", str(path))

    assert (result.exit_code, result.stdout) == (0, "")
    picture = path.read_text()
    labels = [part.partition(" -->")[0] for part in picture.split("<!-- ")[1:]]
    assert labels == ["A", "▁", "b", ".", "&lt;end&gt;", "d", "▁", "e"]


def test_sentences_are_drawn_one_below_the_other(bahdanau: str, tmp_path: Path) -> None:
    answer = told("--model", bahdanau, "A dog. A cat.", "-o", str(tmp_path / "map.png"))

    sources = [found["source_words"][1] for found in answer["attention"]]
    assert sources == ["dog", "cat"]


MISTAKES: list[tuple[list[str], str]] = [
    (["a"], "-o FILE"),
    (["a", "-o", "map.jpg"], ".pdf, .png, .svg"),
    (["a", "-o", "map"], ".pdf, .png, .svg"),
    (["a", "-o", "/no/such/place/map.png"], "/no/such/place/map.png"),
    (["a", "--json", "--head", "1"], "attention_heads: no such head: there are 1"),
    (["a", "--json", "--head", "-1"], "x>=0"),
    (["a", "--json", "--head", "0", "--all-heads"], "--all-heads"),
    (["a", "--json", "--translation", "b", "--beam", "2"], "--beam"),
    ([" ", "--json"], "sentence: is empty"),
    (["a", "--json", "--translation", " \n"], "translation: is empty"),
    (["a\0", "--json"], "sentence: must not contain NUL"),
    (["a", "--json", "--translation", "\udcff"], "translation: must be valid Unicode"),
    (["a" * 200, "--json", "--translation", "b"], "too many tokens: at most 96"),
    (["a", "--json", "--translation", "b" * 99], "too many tokens: at most 47"),
    (["a", "--json", "--source", "xx"], "source: model bahdanau has en"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_one_clear_line(bahdanau: str, arguments: list[str], message: str) -> None:
    result = align("--model", bahdanau, *arguments)

    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_model_without_attention_says_why(without_attention: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("A dog.")
    path, align_path = tmp_path / "map.png", str(tmp_path / "out.align")
    options = ["translate", "--model", without_attention, str(tmp_path / "in.txt")]

    drawn = align("--model", without_attention, SENTENCE, "-o", str(path))
    aligned = CliRunner().invoke(main, [*options, "--alignments", align_path])
    plain = CliRunner().invoke(main, options)

    why = "has no attention over its source: its architecture, bahdanau, has none"
    assert drawn.exit_code == aligned.exit_code == 2
    assert f'--model: {why} (got "bahdanau")' in drawn.stderr
    assert f"alignments: model bahdanau {why}" in aligned.stderr
    assert plain.exit_code == 0 and plain.stdout
    assert not path.exists()


def test_without_matplotlib_it_says_what_to_install(
    bahdanau: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real_import(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "serving.commands.drawing", raising=False)
    monkeypatch.delattr("serving.commands.drawing", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)

    drawn = align("--model", bahdanau, SENTENCE, "-o", str(tmp_path / "map.png"))
    numbers = align("--model", bahdanau, SENTENCE, "--json")

    assert drawn.exit_code == 2
    assert "this needs matplotlib" in drawn.stderr and "attendant-server[plots]" in drawn.stderr
    assert numbers.exit_code == 0
