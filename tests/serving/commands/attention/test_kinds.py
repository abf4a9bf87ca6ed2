"""`attendant align --kind`: what is drawn is what the model's own heads look at."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from serving.bundle.manifest import Precision
from serving.cli import main
from tests.encoders import encoder_bundle
from tests.tiny import tiny_bundle

SENTENCE = "A dog, l'été."
WORDS = ["A", "dog", ",", "l'", "été", ".", "<end>"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def transformer(folder: Path) -> str:
    return str(tiny_bundle("transformer", folder, Precision.FP32, seed=7))


@pytest.fixture(scope="module")
def bahdanau(folder: Path) -> str:
    return str(tiny_bundle("bahdanau", folder, Precision.FP32))


@pytest.fixture(scope="module")
def llama(folder: Path) -> str:
    return str(tiny_bundle("llama", folder, Precision.FP32))


def align(model: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["align", "--model", model, *arguments])


def told(model: str, *arguments: str) -> dict[str, Any]:
    result = align(model, *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def weights_of(model: str, *arguments: str) -> np.ndarray:
    [[view]] = told(model, *arguments)["attention"]
    return np.array(view["weights"])


def test_an_encoder_s_words_by_layer_and_head(transformer: str) -> None:
    asked = (SENTENCE, "--kind", "encoder")
    [[view]] = told(transformer, *asked, "--all-heads")["attention"]

    assert view["rows"] == view["columns"] == WORDS
    assert (view["layers"], view["heads"]) == ([0, 1], [0, 1, 2, 3])
    every = np.array(view["weights"])
    assert every.shape == (2, 4, 7, 7)
    assert every.sum(axis=-1) == pytest.approx(1, abs=1e-5)
    mean = weights_of(transformer, *asked)
    assert mean[0, 0] == pytest.approx(every.mean(axis=(0, 1)), abs=1e-6)
    two = weights_of(transformer, *asked, "--layer", "1", "--head", "0", "--head", "2")
    assert two[0, 0] == pytest.approx(every[1, [0, 2]].mean(axis=0), abs=1e-6)


def test_a_decoder_s_words_of_a_given_translation(transformer: str) -> None:
    answer = told(transformer, SENTENCE, "--translation", "Un chien", "--kind", "decoder")

    assert answer["text"] == "Un chien"
    [[view]] = answer["attention"]
    assert view["rows"][:3] == ["<start>", "Un", "chien"]
    assert not np.triu(view["weights"][0][0], 1).any()


def test_a_prompt_alone_and_what_follows(llama: str) -> None:
    alone = told(llama, "It was")
    further = told(llama, "It was", "--max-tokens", "5")

    assert alone["text"] == "It was" and further["text"].startswith("It was")
    [[short]], [[long]] = (each["attention"] for each in (alone, further))
    assert short["rows"] == ["<start>", "It", "was"]
    pieces = [told(llama, "It was", "--pieces", "--max-tokens", n) for n in ("0", "5")]
    counts = [len(answer["attention"][0][0]["rows"]) for answer in pieces]
    assert counts[1] == counts[0] + 5
    # what goes on may go on with the last word, too
    assert np.array(short["weights"])[0, 0, :2, :2] == pytest.approx(
        np.array(long["weights"])[0, 0, :2, :2], abs=1e-5
    )


def test_a_page_holds_all_kinds(transformer: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    result = align(transformer, "A dog. A cat.", "--translation", "Un chien.", "-o", str(path))

    assert (result.exit_code, result.stdout) == (0, "")
    [data] = re.findall(r'id="data">(.*?)</script>', path.read_text())
    sentences = json.loads(data)
    assert [view["kind"] for view in sentences[0]] == ["cross", "encoder", "decoder"]
    assert {tuple(view["heads"]) for view in sentences[0]} == {(0, 1, 2, 3)}


MISTAKES: list[tuple[list[str], str]] = [
    (["a", "--json", "--kind", "encoder"], '--kind: model bahdanau has cross (got "encoder")'),
    (["a", "--json", "--kind", "all"], "'all' is not one of"),
    (["a", "--json", "--layer", "0"], "--layer needs --kind, one of cross"),
    (["a", "-o", "a.png", "--kind", "cross"], "is shown on a page; name it FILE.html"),
    (
        ["a", "--json", "--kind", "cross", "--head", "1"],
        "--head: of kind cross there are 1, from 0",
    ),
    (["a", "--json", "--kind", "cross", *["--head", "0"] * 2], "--head: names one more than once"),
    (["a", "-o", "a.html", "--layer", "2"], "--layer: of kind cross there are 1, from 0 (got 2)"),
    (["a", "--json", "--max-tokens", "3"], "--max-tokens is of language models"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_one_clear_line(bahdanau: str, arguments: list[str], message: str) -> None:
    result = align(bahdanau, *arguments)

    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("option", [["--translation", "b"], ["--beam", "2"], ["--source", "en"]])
def test_a_language_model_translates_nothing(llama: str, option: list[str]) -> None:
    result = align(llama, "It was", "--json", *option)

    assert result.exit_code == 2
    assert f"{option[0]} is of models that translate" in result.stderr


def test_what_an_encoder_alone_reads_is_drawn(folder: Path) -> None:
    bert = str(encoder_bundle("embedder", folder))
    answer = told(bert, SENTENCE, "--all-heads")
    [[view]] = answer["attention"]
    assert view["kind"] == "encoder" and answer["text"] == ""
    assert view["rows"] == view["columns"] == ["<tag>", *WORDS]
    weights = np.array(view["weights"])
    assert weights.shape == (2, 4, 8, 8)
    assert weights.sum(axis=-1) == pytest.approx(1, abs=1e-5)
    assert align(bert, SENTENCE, "-o", str(folder / "bert.html")).exit_code == 0
    assert "été" in (folder / "bert.html").read_text(encoding="utf-8")
    refused = align(bert, SENTENCE, "--max-tokens", "3", "--json")
    assert refused.exit_code == 2 and "--max-tokens is of language models" in refused.stderr


def test_hops_are_rows(folder: Path) -> None:
    model = str(tiny_bundle("self-attentive", folder, Precision.FP32))
    [[view]] = told(model, SENTENCE)["attention"]
    assert (view["kind"], view["rows"]) == ("hops", ["0", "1", "2"])
    weights = np.array(view["weights"])
    assert weights.shape == (1, 1, 3, len(view["columns"]))
    assert weights.sum(axis=-1) == pytest.approx(1, abs=1e-5)
    assert len({row.tobytes() for row in weights[0, 0]}) == 3
    refused = align(model, SENTENCE, "--kind", "encoder", "--json")
    assert refused.exit_code == 2 and "has hops" in refused.stderr


def test_more_tokens_than_fit_are_told_as_they_were_asked_for(llama: str) -> None:
    result = align(llama, "It was", "--json", "--max-tokens", "60")

    assert result.exit_code == 2
    assert "--max-tokens: do not fit the model's context" in result.stderr
    assert "(got 60)" in result.stderr
