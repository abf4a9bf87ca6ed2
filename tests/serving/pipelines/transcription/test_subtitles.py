"""Transcripts as text and as subtitles."""

from serving.pipelines.transcription.job import Segment, Word
from serving.pipelines.transcription.subtitles import (
    Cue,
    make_cues,
    write_srt,
    write_text,
    write_vtt,
)


def make_segment(text: str, start: float, end: float, words: tuple[Word, ...] = ()) -> Segment:
    return Segment(0, start, end, text, (), 0.0, 0.0, -0.1, 1.0, 0.0, words)


def speak(text: str, pauses: dict[int, float] | None = None) -> tuple[Word, ...]:
    """Return words of 0.4 s, after the pauses that are given by the words' numbers."""
    words, now = [], 0.0
    for number, word in enumerate(text.split()):
        now += (pauses or {}).get(number, 0.0)
        words.append(Word(f" {word}", now, now + 0.4, 1.0))
        now += 0.4
    return tuple(words)


def test_segments_without_words_are_whole_subtitles() -> None:
    cues = list(make_cues([make_segment(" Hello there.", 0.0, 1.5)]))
    assert cues == [Cue(0.0, 1.5, "Hello there.")]


def test_subtitles_of_words_have_at_most_two_lines_of_42_characters() -> None:
    text = "And Mr. John Dashwood had then leisure to consider how much there might be prudently in"
    text += " his power to do for them, for he was not an ill-disposed young man, unless"
    words = speak(text)
    cues = list(make_cues([make_segment(text, 0.0, 99.0, words)]))
    lines = [cue.text.split("\n") for cue in cues]
    assert len(cues) == 2
    assert all(len(part) <= 2 and max(map(len, part)) <= 42 for part in lines)
    assert " ".join(" ".join(part) for part in lines) == text
    assert lines[0] == [
        "And Mr. John Dashwood had then leisure to",
        "consider how much there might be prudently",
    ]
    starts = {round(word.start, 6) for word in words}
    assert all(round(cue.start, 6) in starts and cue.start < cue.end for cue in cues)


def test_a_word_longer_than_a_line_has_a_line_of_its_own() -> None:
    text = f"a {'b' * 60} c"
    [first, second] = make_cues([make_segment(text, 0.0, 2.0, speak(text))])
    assert first.text == f"a\n{'b' * 60}" and second.text == "c"


def test_a_long_pause_ends_a_subtitle() -> None:
    words = speak("one two three", pauses={2: 3.5})
    cues = list(make_cues([make_segment(" one two three", 0.0, 5.0, words)]))
    assert [cue.text for cue in cues] == ["one two", "three"]
    assert cues[0].end == 0.8 and abs(cues[1].start - 4.3) < 1e-9


def test_subrip_has_numbers_and_commas() -> None:
    segments = [
        make_segment(" Hello", 0.0, 1.5),
        make_segment(" a --> b\nc", 3661.25, 3662.9996),
    ]
    assert write_srt(segments) == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello\n\n2\n01:01:01,250 --> 01:01:03,000\na -> b c\n\n"
    )


def test_webvtt_escapes_what_would_be_markup() -> None:
    segments = [make_segment(" if a < b & c --> d", 59.9999, 61.0)]
    assert write_vtt(segments) == (
        "WEBVTT\n\n00:01:00.000 --> 00:01:01.000\nif a &lt; b &amp; c -&gt; d\n\n"
    )


def test_text_has_a_line_for_each_segment() -> None:
    segments = [make_segment(" Hello.", 0, 1), make_segment(" You?", 1, 2)]
    assert write_text(segments) == "Hello.\nYou?\n"
