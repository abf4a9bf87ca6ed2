"""The command line: filters that behave in pipes, one clear line for every mistake."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.cli import main
from serving.text.tokenizer import Tokenizer
from tests.served import attendant
from tests.tiny import tiny_bundle


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def translator(folder: Path) -> str:
    return str(tiny_bundle("bahdanau", folder, Precision.INT8))


@pytest.fixture(scope="module")
def generator(folder: Path) -> str:
    return str(tiny_bundle("llama", folder, Precision.INT8))


def test_translate_keeps_lines_in_order(translator: str) -> None:
    lines = [f"{number} dogs run." for number in range(20)]
    together = CliRunner().invoke(main, ["translate", "--model", translator], "\n".join(lines))
    backwards = CliRunner().invoke(
        main, ["translate", "--model", translator], "\n".join(reversed(lines))
    )

    assert together.exit_code == 0, together.stderr
    assert together.stdout.split("\n") == backwards.stdout.split("\n")[::-1]
    assert len(together.stdout.split("\n")) == 20


def test_translate_keeps_blanks_and_line_ends(translator: str) -> None:
    result = CliRunner().invoke(main, ["translate", "--model", translator], "\n  A dog.\r\n\n \n")

    lines = result.stdout_bytes.split(b"\n")
    assert [lines[0], *lines[2:]] == [b"", b"", b" ", b""]
    assert lines[1].startswith(b"  ")
    assert lines[1].endswith(b"\r")


def test_translate_a_file_and_nothing(translator: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("A dog.")
    options = ["translate", "--model", translator]

    assert CliRunner().invoke(main, [*options, str(tmp_path / "in.txt")]).stdout.strip()
    assert CliRunner().invoke(main, options, "").stdout == ""


def test_generate_one_prompt_as_text_and_several_as_json(generator: str) -> None:
    options = ["generate", "--model", generator, "--max-tokens", "8", "--temperature", "0"]

    one = CliRunner().invoke(main, [*options, "--prompt", "It was"])
    several = CliRunner().invoke(main, options, "It was\nA dog\n")

    assert one.exit_code == several.exit_code == 0, one.stderr + several.stderr
    answers = [json.loads(line) for line in several.stdout.splitlines()]
    assert [answer["prompt"] for answer in answers] == ["It was", "A dog"]
    assert one.stdout == answers[0]["text"] + "\n"


def test_generate_is_repeatable_with_a_seed(generator: str) -> None:
    options = ["generate", "--model", generator, "--max-tokens", "30", "--prompt", "It was"]

    texts = [CliRunner().invoke(main, [*options, "--seed", str(s)]).stdout for s in (1, 1, 2)]

    assert texts[0] == texts[1] != texts[2]


def test_the_same_text_as_the_pipeline(generator: str) -> None:
    """Nothing is lost between engine and terminal, half characters included."""
    options = ["generate", "--model", generator, "--max-tokens", "40", "--temperature", "0"]
    text = CliRunner().invoke(main, [*options, "--prompt", "a"]).stdout[:-1]

    tokenizer = Tokenizer(open_bundle(generator).tokenizer_path)

    assert tokenizer.decode(tokenizer.encode(text)) == text != ""


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["translate", "--model", "{none}"], b"", "{none}: no such folder"),
        (["translate", "--model", "{generator}"], b"", "model: does not translate"),
        (["translate", "--model", "{translator}", "--source", "xx"], b"a", "source: "),
        (["translate", "--model", "{translator}"], b"a\n\xff\n", "line 2: is not UTF-8"),
        (["translate", "--model", "{translator}"], b"a\n\n\0\n", "line 3: must not contain NUL"),
        (["translate", "--model", "{translator}", "{none}"], b"", "No such file"),
        (["generate", "--model", "{translator}", "--prompt", "a"], b"", "model: translates"),
        (["generate", "--model", "{generator}", "--prompt", "\udcff"], b"", "--prompt: must be"),
        (["generate", "--model", "{generator}", "--top-p", "2"], b"a", "top_p: "),
        (["generate", "--model", "{generator}", "--max-tokens", "999"], b"a", "max_tokens: "),
        (["translate", "--model", "{translator}", "--device", "cuda"], b"", "cuda"),
        (["serve", "{none}", "{none}"], b"", "{none}: no such folder"),
        (["serve"], b"", "at least one BUNDLE"),
        (["serve", "--config", "{none}"], b"", "{none}"),
        (["serve", "{translator}", "--config", "{none}"], b"", "alone"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(
    arguments: list[str], stdin: bytes, message: str, translator: str, generator: str
) -> None:
    places = {"none": "/no/such/place", "translator": translator, "generator": generator}

    result = CliRunner().invoke(main, [word.format(**places) for word in arguments], stdin)

    assert result.exit_code == 2
    assert message.format(**places) in result.stderr
    assert "Traceback" not in result.stderr


def test_a_reader_that_leaves_ends_it_quietly(translator: str) -> None:
    process = attendant(
        "translate", "--model", translator, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write("A dog.\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith("\n")  # an answer before the input has ended

    process.stdout.close()
    process.stdin.write("A cat.\n")
    process.stdin.close()

    assert process.wait(timeout=60) == -13  # SIGPIPE, as other filters
    assert process.stderr.read() == ""
    process.stderr.close()


def test_commands_of_other_packages_are_found() -> None:
    result = CliRunner().invoke(main, ["--help"])

    for command in ("serve", "translate", "generate"):
        assert command in result.stdout
