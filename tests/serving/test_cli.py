"""The command line: filters that behave in pipes, one clear line for every mistake."""

import json
import re
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
    return str(tiny_bundle("bahdanau", folder, Precision.INT8, seed=1))


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


def test_translate_keeps_addresses_unless_told_otherwise(translator: str, tmp_path: Path) -> None:
    options = ["translate", "--model", translator]
    more = {
        True: ([], ["--protect"], ["--n-best", "2", "--beam", "2"]),
        False: (["--no-protect"], ["--alignments", str(tmp_path / "align")]),
    }
    for is_kept, kinds in more.items():
        for words in kinds:
            result = CliRunner().invoke(main, [*options, *words], "See www.example.org now.\n")
            assert result.exit_code == 0, result.output
            assert ("www.example.org" in result.stdout) is is_kept, words


def test_translate_a_file_and_nothing(translator: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("A dog.")
    options = ["translate", "--model", translator]

    assert CliRunner().invoke(main, [*options, str(tmp_path / "in.txt")]).stdout.strip()
    assert CliRunner().invoke(main, options, "").stdout == ""


def test_n_best_lists_scores_and_alignments(translator: str, tmp_path: Path) -> None:
    options = ["translate", "--model", translator, "--beam", "4"]
    aligned = tmp_path / "out.align"

    unprotected = [*options, "--no-protect"]  # as where words are aligned
    ranked = CliRunner().invoke(main, [*unprotected, "--n-best", "3"], "A dog.\n\n")
    scored = CliRunner().invoke(
        main, [*options, "--scores", "--alignments", str(aligned)], "A dog.\n\n"
    )

    assert ranked.exit_code == scored.exit_code == 0, ranked.stderr + scored.stderr
    lines = [line.split(" ||| ") for line in ranked.stdout.split("\n")[:-1]]
    assert [number for number, _, _ in lines] == ["0", "0", "0", "1"]
    scores = [float(score) for _, _, score in lines[:3]]
    assert scores == sorted(scores, reverse=True)
    assert scored.stdout == f"{lines[0][1]}\t{lines[0][2]}\n\t0.0000\n"
    links, nothing = aligned.read_text().split("\n")[:2]
    assert all(re.fullmatch(r"\d+-\d+", link) for link in links.split())
    assert links and not nothing


def test_a_translation_begins_with_its_prefix(translator: str) -> None:
    options = ["translate", "--model", translator, "--prefix", "Le chien"]

    assert CliRunner().invoke(main, options, "A dog.\n").stdout.startswith("Le chien")


def test_scores_are_those_of_the_tokens(translator: str) -> None:
    pairs = "A dog.\tUn chien.\nA cat.\tUn chat.\n"

    sums = CliRunner().invoke(main, ["score", "--model", translator], pairs)
    whole = CliRunner().invoke(main, ["score", "--model", translator, "--json"], pairs)

    assert sums.exit_code == whole.exit_code == 0, sums.stderr + whole.stderr
    answers = [json.loads(line) for line in whole.stdout.splitlines()]
    assert [f"{answer['logprob']:.4f}" for answer in answers] == sums.stdout.split()
    for answer, text in zip(answers, ("Un chien.", "Un chat."), strict=True):
        assert "".join(token["text"] for token in answer["tokens"]) == text
        logprobs = [token["logprob"] for token in answer["tokens"]]
        assert sum(logprobs) == pytest.approx(answer["logprob"])
        assert answer["mean_logprob"] == pytest.approx(answer["logprob"] / len(logprobs))


def test_generate_keeps_to_a_schema_and_an_expression(generator: str, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"],'
        ' "additionalProperties": false}'
    )
    options = ["generate", "--model", generator, "--max-tokens", "30", "--seed", "1"]

    as_json = CliRunner().invoke(main, [*options, "--json-schema", str(schema)], "a")
    as_words = CliRunner().invoke(main, [*options, "--regex", "(yes|no)", "--n", "3"], "a")

    assert as_json.exit_code == as_words.exit_code == 0, as_json.stderr + as_words.stderr
    assert json.loads(as_json.stdout)["a"] in (1, 22)
    answers = [json.loads(line) for line in as_words.stdout.splitlines()]
    assert len(answers) == 3
    assert {answer["text"] for answer in answers} <= {"yes", "no"}
    assert {answer["finish_reason"] for answer in answers} == {"stop"}


def test_generate_by_beam_search(generator: str) -> None:
    options = ["generate", "--model", generator, "--max-tokens", "8", "--beam", "4"]

    best = CliRunner().invoke(main, [*options, "--prompt", "It was"])
    three = CliRunner().invoke(main, [*options, "--n", "3", "--prompt", "It was"])

    texts = [json.loads(line)["text"] for line in three.stdout.splitlines()]
    assert len({*texts}) == 3
    assert best.stdout == texts[0] + "\n"


def test_translate_by_sampling_and_by_any_beam_search(translator: str) -> None:
    def output(*options: str) -> str:
        result = CliRunner().invoke(main, ["translate", "--model", translator, *options], "A dog.")
        assert result.exit_code == 0, result.stderr
        return result.stdout

    drawn = [output("--temperature", "9", "--top-k", "40", "--seed", seed) for seed in "112"]
    assert drawn[0] == drawn[1] != drawn[2]

    search = ["--beam", "4", "--scores", "--length-penalty", "0.5"]
    stops = {output(*search, "--early-stopping", when) for when in ("true", "false", "never")}
    assert stops >= {output(*search)}  # false is the default


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
        (["translate", "--model", "{generator}"], b"", "it does not translate"),
        (["translate", "--model", "{translator}", "--source", "xx"], b"a", "source: "),
        (["translate", "--model", "{translator}"], b"a\n\xff\n", "line 2: is not UTF-8"),
        (["translate", "--model", "{translator}"], b"a\n\n\0\n", "line 3: must not contain NUL"),
        (["translate", "--model", "{translator}", "{none}"], b"", "No such file"),
        (["generate", "--model", "{translator}", "--prompt", "a"], b"", "model: translates"),
        (["generate", "--model", "{generator}", "--prompt", "\udcff"], b"", "--prompt: must be"),
        (["generate", "--model", "{generator}", "--top-p", "2"], b"a", "top_p: "),
        (["generate", "--model", "{generator}", "--max-tokens", "999"], b"a", "max_tokens: "),
        (["generate", "--model", "{generator}", "--beam", "2", "--n", "3"], b"a", "--beam 3 or"),
        (["generate", "--model", "{generator}", "--beam", "17"], b"a", "1<=x<=16"),
        (
            ["generate", "--model", "{generator}", "--chat", "--prompt", "a"],
            b"",
            "no chat template",
        ),
        (
            [
                "generate",
                "--model",
                "{generator}",
                "--max-tokens",
                "9",
                "--beam",
                "2",
                "--top-p",
                ".5",
            ],
            b"a",
            "top_p: ",
        ),
        (
            ["generate", "--model", "{generator}", "--max-tokens", "9", "--regex", "("],
            b"a",
            "--regex: does not",
        ),
        (["generate", "--model", "{generator}", "--json-schema", "{none}"], b"a", "No such file"),
        (["generate", "--model", "{generator}", "--typical-p", "0"], b"a", "typical_p: "),
        (["translate", "--model", "{translator}", "--n-best", "2"], b"a", "--beam 2 or"),
        (["translate", "--model", "{translator}", "--length-penalty", "2"], b"a", "needs --beam"),
        (["translate", "--model", "{translator}", "--min-p", ".1"], b"a", "--min-p needs --temp"),
        (
            ["generate", "--model", "{generator}", "--patience", "2"],
            b"a",
            "--patience needs --beam",
        ),
        (
            ["generate", "--model", "{generator}", "--presence-penalty", "3"],
            b"a",
            "presence_penalty: ",
        ),
        (["translate", "--model", "{translator}", "--prefix", "\udcff"], b"a", "--prefix: must be"),
        (["score", "--model", "{translator}"], b"a\tb\na\n", "line 2: must hold a source, a tab"),
        (["score", "--model", "{translator}"], b"a\tb\tc\n", "line 1: must hold a source, a tab"),
        (["score", "--model", "{generator}"], b"a\tb\n", "it does not translate"),
        (["translate", "--model", "{translator}", "--device", "cuda"], b"", "cuda"),
        (["serve", "{none}", "{none}"], b"", "{none}: no such folder"),
        (["serve"], b"", "at least one BUNDLE"),
        (["serve", "{file}"], b"", "{file}: a file, and bundles are folders"),
        (["serve", "{file}", "{none}"], b"", "{file}: not served, it is a file and no bundle"),
        (["serve", "{file}", "{none}"], b"", "{none}: no such folder"),
        (["serve", "--config", "{none}"], b"", "{none}"),
        (["serve", "{translator}", "--config", "{none}"], b"", "alone"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(
    arguments: list[str], stdin: bytes, message: str, translator: str, generator: str
) -> None:
    places = {"none": "/no/such/place", "translator": translator, "generator": generator}
    places["file"] = str(Path(translator) / "bundle.json")

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

    for command in ("serve", "translate", "generate", "score", "align"):
        assert command in result.stdout


def test_help_has_a_whole_sentence_for_each_command() -> None:
    for words in (["--help"], ["lab", "--help"]):
        _, said = CliRunner().invoke(main, words).stdout.split("Options:")
        assert "..." not in said
    assert re.search("^ +lab ", CliRunner().invoke(main, ["--help"]).stdout, re.MULTILINE)
    assert re.search("^ +zoo ", CliRunner().invoke(main, ["lab", "--help"]).stdout, re.MULTILINE)


def test_without_a_model_there_is_one_that_can_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nothing = CliRunner().invoke(main, ["translate"], "A dog.")
    for name in ("bahdanau", "llama"):
        tiny_bundle(name, tmp_path / "build" / "bundles", Precision.INT8)
    (tmp_path / "build" / "bundles" / "damaged").mkdir()
    (tmp_path / "build" / "bundles" / "damaged" / "bundle.json").write_text("{")
    found = CliRunner().invoke(main, ["translate"], "A dog.")

    assert nothing.exit_code == 2
    assert "give --model BUNDLE: there is none in build/bundles" in nothing.stderr
    assert found.exit_code == 0, found.stderr
    assert re.search("the model is build/bundles/.*bahdanau", found.stderr)
    assert found.stdout.strip() and "attendant" not in found.stdout


def test_without_a_model_there_is_one_of_the_languages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bundles = tmp_path / "build" / "bundles"
    tiny_bundle("bahdanau", bundles, Precision.INT8)
    tiny_bundle("transformer", bundles, Precision.INT8, target_languages=("pt",))
    for code, name in (("pt", "transformer"), ("fr", "bahdanau")):
        found = CliRunner().invoke(main, ["translate", "--target", code], "A dog.")
        assert re.search(f"the model is build/bundles/{name}", found.stderr), found.stderr
    none = CliRunner().invoke(main, ["translate", "--target", "de"], "A dog.")
    assert "there is none in build/bundles that can do this" in none.stderr
