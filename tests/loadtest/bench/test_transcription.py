"""`attendant bench-transcribe`: what it counts and reports, with functions as both sides."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from loadtest.bench import utterances
from loadtest.bench.transcription import bench_transcribe, compare_words, describe
from loadtest.bench.utterances import NoUtterances, find_utterances, join_recordings


def test_word_errors_are_counted_after_normalisation() -> None:
    pytest.importorskip("jiwer")
    pytest.importorskip("transformers")
    texts = ["Press 1 for Mr. Smith, please.", "That's all."]
    result = compare_words(
        [],
        texts,
        lambda _: ["press one for mister smith please", "that is all"],
        lambda _: ["", ""],
    )
    assert result["word_error_rates"] == {"ours": 0, "faster-whisper": 100}
    assert describe(result) == (
        "words of 2 utterances: word error rate ours 0.00 %, faster-whisper 100.00 %"
    )


def test_recordings_are_joined_with_pauses() -> None:
    first, second = np.full(3, 5, np.int16), np.full(4, 7, np.int16)
    joined = join_recordings([first, second], 10)
    assert joined.tolist() == [*[5] * 3, *[0] * 8000, *[7] * 4, *[0] * 8000]
    assert len(join_recordings([first, second], 0.25)) == 4000


def test_missing_recordings_are_told_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utterances, "_BOOKS", tmp_path / "nothing")
    with pytest.raises(NoUtterances, match="apt install asterisk-core-sounds-en-g722"):
        find_utterances(5)
    result = CliRunner().invoke(bench_transcribe, [str(tmp_path), "--peer", str(tmp_path)])
    assert result.exit_code == 1
    assert "apt install" in result.output


def test_utterances_are_the_same_each_time_and_at_least_four_words() -> None:
    try:
        chosen = find_utterances(200)
    except NoUtterances as error:
        pytest.skip(str(error))
    assert len({utterance.path for utterance in chosen}) == 200
    assert all(len(utterance.text.split()) >= 4 for utterance in chosen)
    assert chosen == find_utterances(200)
