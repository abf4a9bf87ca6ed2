"""Write transcripts as subtitles, a cue for each segment: SubRip (.srt) and WebVTT (.vtt)."""

from collections.abc import Iterable

from serving.pipelines.transcription.job import Segment


def write_srt(segments: Iterable[Segment]) -> str:
    """Return a file of SubRip."""
    return "".join(
        f"{number}\n{_cue(segment, ',')}" for number, segment in enumerate(segments, start=1)
    )


def write_vtt(segments: Iterable[Segment]) -> str:
    """Return a file of WebVTT (W3C)."""
    return "WEBVTT\n\n" + "".join(_cue(segment, ".") for segment in segments)


def _cue(segment: Segment, decimal_mark: str) -> str:
    """Return the time and the text of a segment. An arrow in the text would be read as a time."""
    start, end = (_time(seconds, decimal_mark) for seconds in (segment.start, segment.end))
    text = " ".join(segment.text.split()).replace("-->", "->")
    return f"{start} --> {end}\n{text}\n\n"


def _time(seconds: float, decimal_mark: str) -> str:
    """Return a time as both formats write it, "00:01:02.345"."""
    whole_seconds, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, rest = divmod(whole_seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest:02}{decimal_mark}{milliseconds:03}"
