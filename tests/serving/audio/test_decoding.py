"""Files of all formats are decoded, in a process that bad ones cannot leave."""

import asyncio
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from serving.audio import decoding
from serving.audio.decoding import Samples, decode_audio
from serving.errors import RequestError
from tests.serving.audio.recordings import FREQUENCY, tone, wav_bytes, write_recording

RATE = 16_000

# name, codec, sampling rate, channel layout
FORMATS = [
    ("a.wav", "pcm_s16le", 44_100, "stereo"),
    ("a8.wav", "pcm_u8", 8_000, "mono"),
    ("a24.wav", "pcm_s24le", 96_000, "5.1"),
    ("float.wav", "pcm_f32le", 22_050, "mono"),
    ("law.wav", "pcm_mulaw", 8_000, "mono"),
    ("adpcm.wav", "adpcm_ima_wav", 16_000, "mono"),
    ("same.wav", "pcm_s16le", 16_000, "mono"),
    ("wide.w64", "pcm_s16le", 192_000, "7.1"),
    ("a.flac", "flac", 48_000, "stereo"),
    ("a.mp3", "mp3", 44_100, "stereo"),
    ("low.mp3", "mp3", 16_000, "mono"),
    ("vorbis.ogg", "vorbis", 44_100, "stereo"),
    ("opus.ogg", "libopus", 48_000, "stereo"),
    ("a.opus", "libopus", 48_000, "mono"),
    ("a.m4a", "aac", 44_100, "stereo"),
    ("a.aac", "aac", 44_100, "mono"),
    ("alac.m4a", "alac", 44_100, "stereo"),
    ("a.webm", "libopus", 48_000, "mono"),
    ("a.amr", "libopencore_amrnb", 8_000, "mono"),
    ("a.g722", "g722", 16_000, "mono"),
    ("a.aiff", "pcm_s16be", 44_100, "stereo"),
    ("a.au", "pcm_mulaw", 8_000, "mono"),
    ("a.caf", "alac", 44_100, "stereo"),
]
VIDEOS = [("a.mp4", "aac"), ("a.mov", "aac"), ("a.mkv", "ac3"), ("a.avi", "mp3"), ("a.ts", "mp2")]


def decode(path: Path, **options: float) -> Samples:
    return asyncio.run(decode_audio(path, RATE, path.name, **options))


def refusal(path: Path, **options: float) -> str:
    with pytest.raises(RequestError) as caught:
        decode(path, **options)
    assert caught.value.field == "file"
    assert caught.value.value == path.name
    return caught.value.message


def assert_is_tone(samples: Samples, seconds: float = 2.0) -> None:
    """Check the length, and that nearly all energy is at the tone's frequency."""
    assert samples.dtype == np.int16
    assert abs(len(samples) / RATE - seconds) < 0.1  # encoders add silence at both ends
    middle = samples[RATE // 2 : RATE // 2 + RATE].astype(np.float64)
    energy = np.abs(np.fft.rfft(middle)) ** 2
    assert energy[round(FREQUENCY) - 4 : round(FREQUENCY) + 5].sum() > 0.95 * energy.sum()
    assert 6500 < np.abs(middle).max() < 9500


@pytest.mark.parametrize(("name", "codec", "rate", "layout"), FORMATS)
def test_formats_rates_and_channels_are_decoded(
    tmp_path: Path, name: str, codec: str, rate: int, layout: str
) -> None:
    write_recording(tmp_path / name, codec, tone(2.0, rate), rate, layout)
    assert_is_tone(decode(tmp_path / name))


@pytest.mark.parametrize(("name", "codec"), VIDEOS)
def test_sound_of_videos_is_decoded(tmp_path: Path, name: str, codec: str) -> None:
    path = write_recording(tmp_path / name, codec, tone(2.0, 48_000), 48_000, video=True)
    assert_is_tone(decode(path))


def test_samples_at_the_models_rate_stay_as_they_are(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).integers(-32768, 32768, RATE).astype(np.int16)
    (tmp_path / "a.wav").write_bytes(wav_bytes(samples))
    np.testing.assert_array_equal(decode(tmp_path / "a.wav"), samples)


def test_channels_are_mixed(tmp_path: Path) -> None:
    left_and_right = np.stack([tone(1.0), -tone(1.0)], axis=1).ravel()
    (tmp_path / "a.wav").write_bytes(wav_bytes(left_and_right, channels=2))
    assert np.abs(decode(tmp_path / "a.wav")).max() <= 1


def test_content_counts_and_not_the_name(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.mp3", "mp3", tone(2.0), RATE)
    assert_is_tone(decode(path.rename(tmp_path / "a.wav")))


def test_lengths_of_streamed_files_may_be_missing_or_wrong(tmp_path: Path) -> None:
    data = wav_bytes(tone(2.0))
    place = data.index(b"data") + 4
    for size in (0, 0xF0000000, 0xFFFFFFFF):
        path = tmp_path / f"{size}.wav"
        path.write_bytes(data[:place] + size.to_bytes(4, "little") + data[place + 4 :])
        assert_is_tone(decode(path))


def test_what_is_there_of_truncated_files_is_decoded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, codec in (("a.wav", "pcm_s16le"), ("a.flac", "flac"), ("a.webm", "libopus")):
        noise = np.random.default_rng(0).integers(-9999, 9999, 6 * 48_000).astype(np.int16)
        path = write_recording(tmp_path / name, codec, noise, 48_000)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with caplog.at_level(logging.WARNING):
            assert 2.0 < len(decode(path)) / RATE < 4.0
    assert re.search(r"a\.webm ends early: [23]\.\d s of 6\.0 s can be decoded", caplog.text)


def test_a_damaged_part_is_skipped(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.mp3", "mp3", tone(4.0), RATE)
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 200] = bytes(range(200))
    path.write_bytes(data)
    assert 3.0 < len(decode(path)) / RATE < 4.2


def test_files_without_sound_are_refused_with_a_sentence(tmp_path: Path) -> None:
    empty = tmp_path / "empty.wav"
    empty.touch()
    assert refusal(empty) == "is empty"
    text = tmp_path / "text.mp3"
    text.write_text("This is no sound.\n" * 100)
    assert refusal(text).startswith("is no recording in a format that is read: WAV, FLAC, MP3")
    (tmp_path / "a.mp4").write_bytes(_video_without_sound(tmp_path / "v.mp4"))
    assert refusal(tmp_path / "a.mp4") == "has no sound: there is no audio stream in it"
    (tmp_path / "short.wav").write_bytes(wav_bytes(tone(0.05)))
    assert refusal(tmp_path / "short.wav") == "is damaged or too short: 0.05 s of it can be decoded"


def _video_without_sound(path: Path) -> bytes:
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25, width=64, height=64)
        stream.pix_fmt = "yuv420p"
        container.mux(stream.encode(av.VideoFrame(64, 64, "yuv420p")))
        container.mux(stream.encode(None))
    return path.read_bytes()


def test_damaged_files_are_refused_with_a_sentence(tmp_path: Path) -> None:
    whole = write_recording(tmp_path / "a.m4a", "aac", tone(4.0), RATE)
    (tmp_path / "half.m4a").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    message = "is damaged or not whole: it begins as MP4, but cannot be read"
    assert refusal(tmp_path / "half.m4a") == message
    data = bytearray(wav_bytes(tone(1.0)))
    data[data.index(b"fmt ") + 10] = 0
    (tmp_path / "without_channels.wav").write_bytes(data)
    message = "is damaged or too short: 0.00 s of it can be decoded"
    assert refusal(tmp_path / "without_channels.wav") == message
    for name, head in (("a.wav", b"RIFF"), ("a.ogg", b"OggS"), ("a.flac", b"fLaC")):
        noise = np.random.default_rng(0).bytes(5000)
        (tmp_path / name).write_bytes(head + noise)
        assert refusal(tmp_path / name).startswith("is damaged")


@pytest.mark.parametrize("rate", [1, 2**31 - 1])
def test_absurd_sampling_rates_are_refused(tmp_path: Path, rate: int) -> None:
    data = bytearray(wav_bytes(tone(3.0)))
    place = data.index(b"fmt ") + 12
    data[place : place + 4] = rate.to_bytes(4, "little")
    (tmp_path / "a.wav").write_bytes(data)
    assert "long" in refusal(tmp_path / "a.wav") or "memory" in refusal(tmp_path / "a.wav")


def test_recordings_that_say_that_they_are_too_long_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav_bytes(tone(3.0)))
    message = refusal(tmp_path / "a.wav", max_seconds=2)
    assert message == (
        "says that it is 0:00:03 long, which is more than the 0:00:02 that are allowed "
        "(hours:minutes:seconds)"
    )


def test_longer_recordings_than_they_say_are_refused(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.flac", "flac", tone(3.0), RATE)
    data = bytearray(path.read_bytes())
    data[21:26] = bytes([data[21] & 0xF0, 0, 0, 0x3E, 0x80])  # STREAMINFO: one second of samples
    path.write_bytes(data)
    assert refusal(path, max_seconds=2).startswith("is longer than the 0:00:02 that are allowed")
    path = write_recording(tmp_path / "a.aac", "aac", tone(3.0), RATE)
    assert refusal(path, max_seconds=2).startswith("is longer than the 0:00:02 that are allowed")


@pytest.mark.parametrize("name", ["list.m3u8", "list.mp3", "list.wav", "list.ffconcat"])
def test_playlists_open_no_other_files(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(wav_bytes(tone(3.0)))
    for text in (
        f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{secret}\n#EXT-X-ENDLIST\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\nconcat:{secret}|{secret}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile 'file:{secret}'\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n",
    ):
        (tmp_path / name).write_text(text)
        assert refusal(tmp_path / name).startswith("is no recording")


def test_names_are_no_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.wav").write_bytes(wav_bytes(tone(1.0)))
    for name in ("concat:a.wav|a.wav", "file:a.wav", "pipe:0"):
        with pytest.raises(FileNotFoundError):
            decode(Path(name))


def test_the_reader_can_open_nothing_once_it_reads() -> None:
    """A decoder that is taken over by a file has no files and no network."""
    program = (
        "import runpy, socket, sys\n"
        "import serving.audio.file_reader as reader\n"
        "def write_samples(*arguments):\n"
        "    for attempt in (lambda: open('/etc/hostname'), socket.socket):\n"
        "        try:\n"
        "            attempt()\n"
        "        except OSError as error:\n"
        "            print(error.errno, file=sys.stderr)\n"
        "    return ''\n"
        "reader.write_samples = write_samples\n"
        "reader.main(['16000', '10', '.wav'])\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert process.stderr.split() == ["24", "24"]  # EMFILE


def test_an_hour_of_noise_is_decoded_within_the_limits(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(-20_000, 20_000, 3600 * RATE, dtype=np.int16)
    (tmp_path / "a.wav").write_bytes(wav_bytes(noise))
    assert len(decode(tmp_path / "a.wav")) == len(noise)
    assert refusal(tmp_path / "a.wav", max_seconds=3599).startswith("says that it is 1:00:00 long")


async def test_a_caller_that_goes_away_ends_the_process(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(-9, 9, 3600 * RATE, dtype=np.int16)
    (tmp_path / "a.wav").write_bytes(wav_bytes(noise, rate=44_100))
    task = asyncio.create_task(decode_audio(tmp_path / "a.wav", RATE, "a.wav"))
    deadline = time.monotonic() + 20
    while not _readers() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert _readers()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not _readers()


def _readers() -> list[str]:
    """Return the command lines of this process's children that read files."""
    children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    process_ids = " ".join(path.read_text() for path in children).split()
    commands = [Path(f"/proc/{process_id}/cmdline").read_text() for process_id in process_ids]
    return [command for command in commands if "file_reader" in command]


def test_without_the_library_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(decoding, "_LIBRARIES", ("no_such_library",))
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'attendant-server\[speech\]'"):
        decode(tmp_path / "a.wav")
