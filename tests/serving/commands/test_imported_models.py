"""Commands with bundles that bring languages, defaults and chat templates along."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from serving.cli import main
from tests.serving.imported import chatting_bundle, many_languages_bundle


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("imported")


@pytest.fixture(scope="module")
def chatting(folder: Path) -> str:
    return str(chatting_bundle(folder / "chatting"))


@pytest.fixture(scope="module")
def many(folder: Path) -> str:
    return str(many_languages_bundle(folder / "many"))


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, arguments, stdin)


def output(*arguments: str, stdin: str = "") -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_a_chat_is_the_completion_of_what_the_template_writes(chatting: str) -> None:
    """With one start token: the template's, not the bundle's too."""
    model = ("generate", "--model", chatting)

    answer = output(
        *model, "--chat", "--system", "Be brief.", "--prompt", "Hi", "--max-tokens", "9"
    )
    written = "system: Be brief.\nuser: Hi\nassistant:"

    assert answer == output(*model, "--prompt", written, "--max-tokens", "9") != "\n"


def test_the_bundle_says_how_to_decode(chatting: str) -> None:
    model = ("generate", "--model", chatting, "--prompt", "It was")
    default = output(*model)

    assert default == output(*model)  # its temperature is 0
    assert default == output(*model, "--max-tokens", "6")
    assert default != output(*model, "--max-tokens", "9")
    assert default != output(*model, "--temperature", "5", "--seed", "1")


def test_messages_from_lines(chatting: str) -> None:
    lines = output("generate", "--model", chatting, "--chat", stdin="Hi\nHo\n").splitlines()

    answers = [json.loads(line) for line in lines]
    assert [answer["prompt"] for answer in answers] == ["Hi", "Ho"]
    assert all(answer["text"] for answer in answers)


def test_languages_by_any_of_their_codes(many: str) -> None:
    def translated(source: str, target: str) -> str:
        pair = ("--source", source, "--target", target)
        return output("translate", "--model", many, *pair, stdin="A dog.\n")

    assert translated("en", "pt-BR") == translated("eng_Latn", "por_Latn")
    assert translated("EN", "fr") != translated("EN", "pt") != translated("fr", "pt")


def test_the_bundle_says_how_wide_to_search(many: str) -> None:
    model = ("translate", "--model", many, "--source", "en", "--target", "fr", "--scores")

    default = output(*model, stdin="A dog.\n")

    assert default == output(*model, "--beam", "3", stdin="A dog.\n")
    assert default != output(*model, "--length-penalty", "2", stdin="A dog.\n")
    assert output(*model, "--n-best", "3", stdin="A dog.\n").count("\n") == 3


def test_scores_and_alignments_of_a_pair(many: str) -> None:
    pair = ("--source", "en", "--target", "pt")

    scored = output("score", "--model", many, *pair, stdin="A dog.\tUm.\n")
    other = output(
        "score", "--model", many, "--source", "en", "--target", "fr", stdin="A dog.\tUm.\n"
    )
    aligned = json.loads(output("align", "--model", many, *pair, "--json", "A dog runs."))

    assert float(scored) != float(other)
    assert aligned["attention"][0]["source_words"] == ["A", "dog", "runs", ".", ""]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "--target", "fr"], "--source must be one of eng_Latn, fra_Latn"),
        (["translate", "--source", "en"], "--target must be one of fra_Latn, por_Latn"),
        (["translate", "--source", "de", "--target", "fr"], "source: model "),
        (["translate", "--source", "en", "--target", "de"], "has fra_Latn, por_Latn"),
        (["translate", "--source", "en", "--target", "fr", "--n-best", "4"], "--beam 4 or more"),
        (["score", "--source", "en"], "--target must be one of"),
        (["align", "--json", "--source", "fr", "a"], "--target must be one of eng_Latn, por_Latn"),
    ],
)
def test_what_is_not_clear_is_refused(arguments: list[str], message: str, many: str) -> None:
    command, *options = arguments
    result = run(command, "--model", many, *options, stdin="a\n")

    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_chats_that_cannot_be(chatting: str, many: str) -> None:
    lonely = run("generate", "--model", chatting, "--system", "a", "--prompt", "b")
    translator = run("generate", "--model", many, "--chat", "--prompt", "b")

    assert (lonely.exit_code, translator.exit_code) == (2, 2)
    assert "--system needs --chat" in lonely.stderr
    assert "translates" in translator.stderr
