"""`attendant transcribe`: transcripts of recordings as text, subtitles and JSON, and translated."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from serving.bundle.manifest import Precision
from serving.commands.transcribe import transcribe
from serving.documents.formats.registry import read_document
from tests.serving.audio.recordings import tone, wav_bytes, write_recording
from tests.tiny import tiny_bundle

RATE = 16_000


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(transcribe, [*map(str, arguments)])


def run_well(*arguments: str | Path) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle("whisper", tmp_path_factory.mktemp("whisper"), Precision.FP32)


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    noise = np.random.default_rng(0).integers(-9999, 9999, 5 * RATE).astype(np.int16)
    return write_recording(tmp_path / "talk.flac", "flac", noise, RATE)


@pytest.fixture
def beep(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "beep.mp3", "mp3", tone(3.0), RATE)


def test_the_text_goes_to_standard_output(bundle: Path, talk: Path) -> None:
    one, two = (run_well("--model", bundle, "--temperature", "0", talk) for _ in range(2))
    assert one.stdout == two.stdout
    assert one.stdout.strip()


def test_of_several_files_each_has_a_line(bundle: Path, talk: Path, beep: Path) -> None:
    result = run_well("--model", bundle, "--temperature", "0", talk, beep, talk)
    first, _, third = result.stdout.splitlines()
    assert first == third
    result = run_well("--model", bundle, "--temperature", "0", "--format", "json", talk, beep)
    texts = [json.loads(line)["text"] for line in result.stdout.splitlines()]
    assert " ".join(texts[0].split()) == first


@pytest.mark.parametrize("suffix", ["srt", "vtt"])
def test_subtitles_are_read_by_others(bundle: Path, talk: Path, suffix: str) -> None:
    output = talk.with_suffix(f".{suffix}")
    run_well("--model", bundle, "--temperature", "0", talk, "-o", output)
    text = output.read_text()
    assert re.search(r"^00:00:0\d[,.]\d{3} --> 00:00:0\d[,.]\d{3}$", text, re.MULTILINE)
    read_document(output, output.name)


def test_json_has_times_of_segments_and_words(bundle: Path, talk: Path) -> None:
    output = talk.with_suffix(".json")
    run_well("--model", bundle, "--temperature", "0", "--words", talk, "-o", output)
    transcript = json.loads(output.read_text())
    assert transcript["duration"] == 5.0
    assert transcript["language"] in ("en", "fr")
    assert 0 < transcript["language_probability"] <= 1
    assert transcript["segments"]
    for segment in transcript["segments"]:
        assert 0 <= segment["start"] <= segment["end"]
    words = [word for segment in transcript["segments"] for word in segment["words"]]
    assert all(word.keys() == {"word", "start", "end", "probability"} for word in words)


def test_a_folder_gets_a_file_for_each(
    bundle: Path, talk: Path, beep: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "transcripts"
    run_well("--model", bundle, "--temperature", "0", talk, beep, "-o", folder)
    assert {path.name for path in folder.iterdir()} == {"talk.srt", "beep.srt"}
    run_well("--model", bundle, "--temperature", "0", "--format", "txt", talk, "-o", folder)
    assert {path.name for path in folder.iterdir()} == {"talk.srt", "beep.srt", "talk.txt"}


def test_options_change_what_is_asked(bundle: Path, talk: Path) -> None:
    def transcript(*options: str) -> dict:
        return json.loads(run_well("--model", bundle, "--format", "json", *options, talk).stdout)

    plain = transcript("--temperature", "0", "--language", "fr")
    assert (plain["language"], plain["language_probability"]) == ("fr", 1.0)
    assert {segment["temperature"] for segment in plain["segments"]} == {0.0}
    drawn = transcript("--temperature", "0.9", "--language", "fr")
    assert {segment["temperature"] for segment in drawn["segments"]} == {0.9}
    for options in (["--translate"], ["--prompt", "A text before."], ["--beam", "3"]):
        assert transcript("--temperature", "0", "--language", "fr", *options) != plain


def test_the_model_that_is_chosen_need_not_write_the_language_of_the_translation(
    talk: Path, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "bundles").mkdir()
    (tmp_path / "build" / "bundles" / "whisper").symlink_to(bundle)
    translator = tiny_bundle("transformer", tmp_path, Precision.FP32)
    monkeypatch.chdir(tmp_path)
    assert json.loads((bundle / "bundle.json").read_text())["target_languages"] == ["en"]
    options = ("--temperature", "0", "--language", "en", "--to", "fr", "--translator", translator)
    assert "the model is build/bundles/whisper" in run_well(*options, talk).stderr


def test_in_parallel_what_nobody_says_is_not_heard(bundle: Path, beep: Path) -> None:
    result = run_well("--model", bundle, "--parallel", beep)
    assert result.stdout == ""
    assert f"attendant: nobody speaks in {beep}" in result.stderr


def test_transcripts_are_translated(bundle: Path, talk: Path, tmp_path: Path) -> None:
    translator = tiny_bundle("transformer", tmp_path, Precision.FP32)
    common = ("--model", bundle, "--temperature", "0", "--language", "en", talk)
    run_well(*common, "-o", tmp_path / "en.srt")
    to_french = ("--to", "fr", "--translator", translator)
    run_well(*common, *to_french, "-o", tmp_path / "fr.srt")
    run_well(*common, *to_french, "-o", tmp_path / "translated", "--format", "vtt")
    assert [path.name for path in (tmp_path / "translated").iterdir()] == ["talk.fr.vtt"]
    assert (tmp_path / "fr.srt").read_text() != (tmp_path / "en.srt").read_text()


def test_bad_files_are_reported_and_others_are_transcribed(
    bundle: Path, talk: Path, tmp_path: Path
) -> None:
    empty, text, short = (tmp_path / name for name in ("empty.wav", "text.mp3", "short.wav"))
    empty.touch()
    text.write_text("This is no sound." * 99)
    short.write_bytes(wav_bytes(tone(0.01)))
    result = run("--model", bundle, "--temperature", "0", empty, talk, text, short)
    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == 1
    reports = result.stderr.splitlines()
    assert reports[0] == f"attendant: {empty} is empty"
    assert reports[1].startswith(f"attendant: {text} is no recording in a format that is read")
    assert reports[2] == (
        f"attendant: {short} is damaged or too short: 0.01 s of it can be decoded"
    )


def test_what_cannot_be_done_is_said_before_any_work(
    bundle: Path, talk: Path, beep: Path, tmp_path: Path
) -> None:
    other = tiny_bundle("transformer", tmp_path, Precision.FP32)
    (tmp_path / "again").mkdir()
    same_name = tmp_path / "again" / talk.name
    same_name.write_bytes(talk.read_bytes())
    for arguments, words in (
        ((talk, "-o", "talk.doc"), "must end with .txt, .srt, .vtt, .json"),
        ((talk, "-o", "talk.srt", "--format", "vtt"), "must end with .vtt"),
        ((talk, "-o", tmp_path / "missing" / "talk.srt"), "there is no folder"),
        ((talk, same_name, "-o", tmp_path), "would be written over"),
        ((talk, beep, "--format", "srt"), "need -o FOLDER"),
        ((talk, "--to", "fr", "--words"), "words of a translation have no times"),
        ((talk, "--translator", other), "--translator needs --to"),
        ((talk, "--to", "xx", "--translator", other), "--to xx: "),
        ((talk, "--language", "xx"), "language"),
        ((tmp_path / "no.mp3",), "does not exist"),
    ):
        result = run("--model", bundle, *arguments)
        assert result.exit_code != 0
        assert words in result.output + str(result.exception)
    result = run("--model", other, talk)
    assert "it does not transcribe speech" in str(result.exception)


def test_without_bundles_it_says_where_they_are(
    talk: Path, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    result = run(talk)
    assert result.exit_code == 2
    assert "give --model BUNDLE" in result.output
    assert "`attendant pull whisper-base` fetches one" in result.output
    result = run("--model", bundle, talk, "--to", "fr")
    assert result.exit_code == 2
    assert "`attendant pull firefox` lists pairs to fetch" in result.output
