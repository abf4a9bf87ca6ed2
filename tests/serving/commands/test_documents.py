"""`attendant translate -o`: documents in, documents out, or one clear line."""

import re
from pathlib import Path

import docx
import pytest
from click.testing import CliRunner, Result

from serving.bundle.manifest import Precision
from serving.cli import main
from serving.documents.formats.registry import FORMATS
from tests.tiny import tiny_bundle


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bundle("bahdanau", tmp_path_factory.mktemp("bundle"), Precision.INT8))


def translate(model: str, *words: object) -> Result:
    return CliRunner().invoke(main, ["translate", "--model", model, *map(str, words)])


def test_the_help_names_all_formats() -> None:
    text = CliRunner().invoke(main, ["translate", "--help"]).output
    assert {*FORMATS} <= {*re.findall(r"(?<!\w)\.([a-z]+)\b", text)}


def test_a_template_of_gettext_becomes_a_po_file(translator: str, tmp_path: Path) -> None:
    (tmp_path / "a.pot").write_text('msgid "A dog."\nmsgstr ""\n')

    translate(translator, tmp_path / "a.pot", "-o", tmp_path / "out")
    translate(translator, tmp_path / "a.pot", "-o", tmp_path / "b.po")

    assert "fuzzy" in (tmp_path / "out/a.po").read_text()
    assert (tmp_path / "b.po").read_text().startswith('msgid ""')


def test_one_document_and_several(translator: str, tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("A dog runs.")
    document.add_paragraph("42")
    document.save(str(tmp_path / "a.docx"))
    (tmp_path / "b.txt").write_text("A cat.\n\nTwo dogs.\n")

    one = translate(translator, tmp_path / "a.docx", "-o", tmp_path / "out.docx")
    several = translate(
        translator, tmp_path / "a.docx", tmp_path / "b.txt", "-o", tmp_path / "out", "--beam", 2
    )

    assert (one.exit_code, several.exit_code) == (0, 0), one.stderr + several.stderr
    first, second = docx.Document(str(tmp_path / "out.docx")).paragraphs
    assert first.text != "A dog runs." and second.text == "42"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.docx", "b.txt"]
    assert (tmp_path / "out/b.txt").read_text().count("\n") == 3


def test_a_target_that_is_the_source_language_changes_nothing(
    translator: str, tmp_path: Path
) -> None:
    text = "A  dog runs.\n\nOK\n"
    (tmp_path / "a.txt").write_text(text)

    lines = translate(translator, tmp_path / "a.txt", "--target", "en-GB")
    document = translate(translator, tmp_path / "a.txt", "-o", tmp_path / "b.txt", "--target", "en")

    assert (lines.stdout, document.exit_code) == (text, 0)
    assert (tmp_path / "b.txt").read_text() == text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.rtf", "-o", "out"], "is of no known format; there are: .txt"),
        (["a.docx", "-o", "out"], "is no whole ZIP archive"),
        (["a.txt", "-o", "b.docx"], "must end with .txt"),
        (["a.txt", "-o", "."], "would be written over"),
        (["a.txt", "sub/a.txt", "-o", "out"], "would be written over"),
        (["a.txt", "a.docx"], "several FILES need -o"),
        (["a.txt", "-o", "out", "--scores"], "are of lines"),
        (["-o", "out"], "-o needs FILES"),
        (["none.txt", "-o", "out"], "none.txt: No such file or directory"),
        (["none.txt"], "none.txt: No such file or directory"),
        (["a.docx"], "a.docx is a document: give -o FILE"),
        (["sub"], "sub is a folder; FILES have texts, --model names a bundle"),
        (["a.txt", "-o", "a.txt"], "a.txt would be written over"),
        (["a.txt", "-o", "sub/../a.txt"], "a.txt would be written over"),
    ],
)
def test_mistakes(
    translator: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("a.txt", "a.rtf", "a.docx", "sub/a.txt"):
        (tmp_path / name).write_text("A dog.")

    result = translate(translator, *words)

    assert result.exit_code == 2
    assert message in result.stderr
    assert (tmp_path / "a.txt").read_text() == "A dog."
