"""Decodes recordings: files of many formats become samples of one channel."""

from pathlib import Path
from typing import Any

import numpy as np

Samples = np.ndarray[Any, np.dtype[np.int16]]

MAX_SECONDS = 4 * 3600.0


async def decode_audio(
    path: Path, sampling_rate: int, name: str, max_seconds: float = MAX_SECONDS
) -> Samples:
    """Return the sound of a file, or the first audio stream of a video: i16 [samples], one channel.

    sampling_rate: samples a second of the result.
    name: the file's name, for messages; its ending tells formats that have no mark of their own.
    max_seconds: a longer recording is refused.

    Raises RequestError for files without sound, damaged or too long ones, and other formats.
    """
    raise NotImplementedError
