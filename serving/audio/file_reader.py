"""Decodes a recording: a program that reads the file on its standard input, and writes samples.

A file can ask for any amount of time and memory, and decoders have errors, so it is read in a
process of its own (`decoding` starts it), which ends at its limits. Before anything of the file is
read, the process gives up opening files and connections, which playlists and references ask for.

The arguments are the sampling rate, the longest recording in seconds, and the ending of the file's
name. The samples are i16, of one channel. With status REFUSED standard error has the reason; with 0
it may have a remark.
"""

import os
import resource
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from io import FileIO
from typing import BinaryIO

import av
import av.audio.codeccontext
import av.audio.stream
import av.subtitles.codeccontext
import av.subtitles.stream  # PyAV would load these later, when no file can be opened
import av.video.codeccontext
import av.video.stream
from av.stream import Discard

REFUSED = 3
MAX_MEMORY_BYTES = 2**30
LEAST_PROCESSOR_SECONDS = 30
RECORDED_SECONDS_PER_PROCESSOR_SECOND = (
    30  # the slowest, 8 channels of 192 kHz, are three times as fast
)
_SAMPLE_BYTES = 2
_LEAST_SECONDS = 0.1  # less is no recording
_LOST_SECONDS = 1.0  # that a remark is made about

# Formats whose files refer to others, such as playlists, are not among these, nor is what only
# decodes pictures: the readers and decoders are those for which there are tests.
_FORMATS = (
    "aac",
    "aiff",
    "amr",
    "au",
    "avi",
    "caf",
    "flac",
    "g722",
    "gsm",
    "matroska,webm",
    "mov,mp4,m4a,3gp,3g2,mj2",
    "mp3",
    "mpegts",
    "ogg",
    "w64",
    "wav",
)
_DECODERS = (
    "aac",
    "ac3",
    "adpcm_ima_qt",
    "adpcm_ima_wav",
    "adpcm_ms",
    "alac",
    "amrnb",
    "amrwb",
    "eac3",
    "flac",
    "g722",
    "gsm",
    "gsm_ms",
    "libopencore_amrnb",
    "libopencore_amrwb",
    "libopus",
    "mp2",
    "mp2float",
    "mp3",
    "mp3float",
    "opus",
    "pcm_alaw",
    "pcm_f32be",
    "pcm_f32le",
    "pcm_f64be",
    "pcm_f64le",
    "pcm_mulaw",
    "pcm_s16be",
    "pcm_s16le",
    "pcm_s24be",
    "pcm_s24le",
    "pcm_s32be",
    "pcm_s32le",
    "pcm_s8",
    "pcm_u8",
    "speex",
    "vorbis",
    "wavpack",
)
_FORMATS_WITHOUT_MARK = {".g722": "g722", ".gsm": "gsm"}  # known by the file's name alone
_NO_FORMAT = (
    "is no recording in a format that is read: WAV, FLAC, MP3, Ogg, Opus, M4A, AAC, WebM, AMR, "
    "GSM, G.722, AIFF, or a video in MP4, MOV, Matroska, WebM, AVI or MPEG-TS"
)


_HEAD_BYTES = 12  # within which are these marks of files, which may be damaged behind them
_MARKS = {
    b"ftyp": "MP4",
    b"RIFF": "WAV",
    b"fLaC": "FLAC",
    b"OggS": "Ogg",
    b"ID3": "MP3",
    b"\x1aE\xdf\xa3": "WebM or Matroska",
    b"#!AMR": "AMR",
}
_ESTIMATED = ("aac", "mp3")  # formats without a length, which FFmpeg estimates by the first frames


class Refused(Exception):
    """Why a file is not transcribed, as the end of a sentence whose subject is the file."""


class Recording:
    """The first audio stream of a file. Raises Refused for files without one."""

    def __init__(self, file: FileIO, suffix: str) -> None:
        if not file.seekable():
            raise Refused("is a pipe: save it as a file, which can be read at any place")
        if os.fstat(file.fileno()).st_size == 0:
            raise Refused("is empty")
        options = {
            "format_whitelist": ",".join(_FORMATS),
            "codec_whitelist": ",".join(_DECODERS),
            "protocol_whitelist": "none",
        }
        try:
            self.container = av.open(
                file,
                "r",
                format=_FORMATS_WITHOUT_MARK.get(suffix),
                container_options=options,
                metadata_errors="replace",
            )
        except MemoryError:
            raise
        except (av.FFmpegError, ValueError) as error:
            file.seek(0)
            head = file.read(_HEAD_BYTES)
            name = next((name for mark, name in _MARKS.items() if mark in head), None)
            damage = f"is damaged or not whole: it begins as {name}, but cannot be read"
            raise Refused(damage if name else _NO_FORMAT) from error
        if not self.container.streams.audio:
            raise Refused("has no sound: there is no audio stream in it")
        self.stream = self.container.streams.audio[0]
        codec = self.stream.codec_context
        if codec is None or codec.name not in _DECODERS:
            raise Refused(f"has sound in a format that is not read ({codec and codec.name})")
        codec.thread_count = 1
        for stream in self.container.streams:
            if stream is not self.stream:
                stream.discard = Discard.all

    @property
    def declared_seconds(self) -> float | None:
        """Return how long the file says that the sound is, if it does."""
        if self.container.format.name in _ESTIMATED:
            return None
        if self.stream.duration is not None and self.stream.time_base is not None:
            return float(self.stream.duration * self.stream.time_base)
        duration = self.container.duration  # of all streams, in microseconds
        return None if duration is None else duration / av.time_base

    def frames(self) -> Iterator[av.AudioFrame]:
        """Yield what can be decoded; damaged parts are skipped, as players do."""
        packets = self.container.demux(self.stream)
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except MemoryError:
                raise
            except av.FFmpegError:  # the file ends within a packet
                return
            try:
                yield from packet.decode()
            except MemoryError:
                raise
            except av.FFmpegError:
                continue


def resample(frames: Iterable[av.AudioFrame], sampling_rate: int) -> Iterator[av.AudioFrame]:
    """Yield i16 frames of one channel. The layout and rate of what comes in may change."""
    resampler: av.AudioResampler | None = None
    kind = None
    for frame in frames:
        frame.pts = None  # the frames follow each other, whatever the file says
        frame_kind = (frame.format.name, frame.layout.name, frame.sample_rate)
        if resampler is None or kind != frame_kind:
            if resampler is not None:
                yield from resampler.resample(None)
            resampler, kind = av.AudioResampler("s16", "mono", sampling_rate), frame_kind
        yield from resampler.resample(frame)
    if resampler is not None:
        yield from resampler.resample(None)


def write_samples(
    file: FileIO, suffix: str, sampling_rate: int, max_seconds: float, output: BinaryIO
) -> str:
    """Write the samples of a file, and return a remark on it, which may be empty. Raise Refused,
    which may be after some of them.
    """
    recording = Recording(file, suffix)
    limit = f"than the {_clock(max_seconds)} that are allowed (hours:minutes:seconds)"
    declared_seconds = recording.declared_seconds
    if declared_seconds is not None and declared_seconds > max_seconds:
        raise Refused(f"says that it is {_clock(declared_seconds)} long, which is more {limit}")
    num_samples = 0
    try:
        for frame in resample(recording.frames(), sampling_rate):
            num_samples += frame.samples
            if num_samples > max_seconds * sampling_rate:
                raise Refused(f"is longer {limit}")
            output.write(memoryview(frame.planes[0])[: frame.samples * _SAMPLE_BYTES])
    except MemoryError:
        raise
    except (av.FFmpegError, ValueError) as error:
        raise Refused("has channels or a sampling rate that cannot be converted") from error
    output.flush()
    seconds = num_samples / sampling_rate
    if seconds < _LEAST_SECONDS:
        raise Refused(f"is damaged or too short: {seconds:.2f} s of it can be decoded")
    if declared_seconds is not None and declared_seconds - seconds > _LOST_SECONDS:
        return f"ends early: {seconds:.1f} s of {declared_seconds:.1f} s can be decoded"
    return ""


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def main(arguments: Sequence[str]) -> int:
    sampling_rate, max_seconds, suffix = int(arguments[0]), float(arguments[1]), arguments[2]
    processor_seconds = LEAST_PROCESSOR_SECONDS + int(
        max_seconds / RECORDED_SECONDS_PER_PROCESSOR_SECOND
    )
    limits = {
        resource.RLIMIT_AS: MAX_MEMORY_BYTES,
        resource.RLIMIT_CPU: processor_seconds,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 0,  # what is open stays open
    }
    for limit, size in limits.items():
        resource.setrlimit(limit, (size, size))
    try:
        with FileIO(0, closefd=False) as file:
            remark = write_samples(file, suffix, sampling_rate, max_seconds, sys.stdout.buffer)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return REFUSED
    print(remark, end="", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
