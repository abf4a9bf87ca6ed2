"""Recordings for tests, which PyAV writes."""

import io
import wave
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from serving.audio.decoding import Samples

FREQUENCY = 440.0


def tone(seconds: float, rate: int = 16_000, amplitude: int = 8000) -> Samples:
    """Return a sine of 440 Hz: i16 [samples]."""
    times = np.arange(round(seconds * rate)) / rate
    return (amplitude * np.sin(2 * np.pi * FREQUENCY * times)).astype(np.int16)


def write_recording(
    path: Path, codec: str, samples: Samples, rate: int, layout: str = "mono", video: bool = False
) -> Path:
    """Write samples to all channels of a file, in the format that its name says. With `video` the
    first stream is one of a few grey pictures.
    """
    with av.open(str(path), "w") as container:
        if video:
            pictures = container.add_stream("mpeg4", rate=25, width=64, height=64)
            pictures.pix_fmt = "yuv420p"
        sound = container.add_stream(codec, rate=rate, layout=layout)
        assert isinstance(sound, av.AudioStream)
        sound.codec_context.options = {"strict": "experimental"}  # FFmpeg's own Vorbis
        if video:
            for index in range(25):
                picture = av.VideoFrame(64, 64, "yuv420p")
                picture.pts, picture.time_base = index, Fraction(1, 25)
                container.mux(pictures.encode(picture))
            container.mux(pictures.encode(None))
        interleaved = np.repeat(samples, sound.layout.nb_channels)[None]
        frame = av.AudioFrame.from_ndarray(interleaved, format="s16", layout=layout)
        frame.sample_rate = rate
        container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    return path


def wav_bytes(samples: Samples, rate: int = 16_000, channels: int = 1) -> bytes:
    """Return a WAV file; samples of all channels follow each other."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(samples.tobytes())
    return file.getvalue()
