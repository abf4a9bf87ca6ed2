"""`attendant embed` and `attendant classify`: a vector or a label for each line, in order."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file

from serving.cli import main
from tests.encoders import encoder_bundle

LINES = ["A dog runs.", "", "Ein längerer Text über Hunde", "Snow", "A dog runs."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoders")
    for kind in ("embedder", "classifier", "reranker", "tagger"):
        encoder_bundle(kind, folder)
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return folder


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, arguments, stdin)


def output(*arguments: str, stdin: str = "") -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_each_line_has_its_vector(folder: Path) -> None:
    embed = ("embed", "--model", str(folder / "embedder-fp32"))
    lines, arrays = str(folder / "lines.txt"), (folder / "v.npy", folder / "v.safetensors")
    rows = [json.loads(line) for line in output(*embed, lines).splitlines()]
    found = np.array(rows, np.float32)
    assert found.shape == (5, 32) and found[0].tobytes() == found[4].tobytes()
    for path in arrays:
        assert output(*embed, lines, "-o", str(path)) == ""
    assert np.load(arrays[0]).tobytes() == found.tobytes()
    assert load_file(arrays[1])["embeddings"].tobytes() == found.tobytes()
    piped = output(*embed, "--dimensions", "4", "--prompt-name", "query", stdin="Snow\n")
    whole = output(*embed, "--dimensions", "4", stdin="query: Snow")
    assert piped == whole and len(json.loads(piped)) == 4


def test_labels_and_pairs(folder: Path) -> None:
    lines = output("classify", "--model", str(folder / "classifier-fp32"), stdin="A\nA film\n")
    for found in map(json.loads, lines.splitlines()):
        assert found["label"] == max(found["scores"], key=found["scores"].__getitem__)
        assert [*found["scores"]] == ["good", "bad", "so-so"]
    reranker = ("classify", "--model", str(folder / "reranker-fp32"))
    first, second = map(json.loads, output(*reranker, stdin="a\tb\na\tc\n").splitlines())
    assert first["label"] == "relevance" and first["scores"] != second["scores"]

    tagger = ("classify", "--model", str(folder / "tagger-fp32"))
    [entity, *_] = json.loads(output(*tagger, stdin="A dog\n"))["entities"]
    assert entity["text"] == "A dog"[entity["start"] : entity["end"]]


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (("embed", "--model", "classifier-fp32"), "a\n", "classifies texts; it does not make"),
        (("classify", "--model", "embedder-fp32"), "a\n", "makes embeddings; it does not classify"),
        (("translate", "--model", "embedder-fp32"), "a\n", "makes embeddings; it does not transl"),
        (
            ("embed", "--model", "embedder-fp32"),
            "a\n" + "x" * 90,
            "line 2: the model reads 64 tokens, and this has 28",
        ),
        (("embed", "--model", "embedder-fp32", "--prompt-name", "x"), "a", "no such prompt"),
        (("embed", "--model", "embedder-fp32", "--dimensions", "33"), "a", "from 1 to 32"),
        (("embed", "--model", "embedder-fp32", "-o", "v.txt"), "a", "must end with .npy or"),
        (("embed", "--model", "embedder-fp32", "-o", "v.npy"), "", "there are no lines"),
        (("embed", "--model", "embedder-fp32", "-o", "no/v.safetensors"), "a", "no folder no"),
        (("classify", "--model", "reranker-fp32"), "a\nb\tc\td", "line 2: must hold one text, or"),
    ],
)
def test_mistakes_are_one_clear_line(
    folder: Path, arguments: tuple[str, ...], stdin: str, message: str
) -> None:
    command, option, model, *others = arguments
    result = run(command, option, str(folder / model), *others, stdin=stdin)
    assert result.exit_code == 2 and message in result.stderr, result.stderr
