"""Utterances of human voices that Debian's packages have, with their texts, to measure word errors.

The prompts of asterisk-core-sounds-en-g722 (G.722, 16 kHz, one voice), and the sentences of
LibriVox in pocketsphinx-testdata (WAV, 16 kHz).
"""

import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from serving.audio.decoding import Samples, decode_audio

SAMPLING_RATE = 16_000
ADVICE = "`apt install asterisk-core-sounds-en-g722 pocketsphinx-testdata` installs the recordings"
_PAUSE_SECONDS = 0.5
_FEWEST_WORDS = 4
_PROMPTS = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
_PROMPT_TEXTS = Path("/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz")
_BOOKS = Path("/usr/share/pocketsphinx/test/data/librivox")
_PROMPT_LINE = re.compile(r"([\w/-]+):\s*([^\[\]()<>{}]+)")
_BOOK_LINE = re.compile(r"<s> (.+) </s> \((.+)\)")


@dataclass(frozen=True)
class Utterance:
    path: Path
    text: str


class NoUtterances(Exception):
    """The recordings are not installed."""


def find_utterances(count: int) -> list[Utterance]:
    """Return so many utterances of at least four words, the same ones every time: those of books,
    then prompts at even distances in the order of their names. Raises NoUtterances.
    """
    for path in (_PROMPT_TEXTS, _PROMPTS, _BOOKS):
        if not path.exists():
            raise NoUtterances(f"there is no {path}: {ADVICE}")
    books, prompts = list(_read_books()), list(_read_prompts())
    if not 1 <= count <= len(books) + len(prompts):
        raise NoUtterances(f"there are 1 to {len(books) + len(prompts)} utterances, not {count}")
    num_prompts = max(count - len(books), 0)
    places = np.linspace(0, len(prompts) - 1, num_prompts).round().astype(int)
    return [*books[:count], *(prompts[place] for place in places)]


def _read_prompts() -> Iterator[Utterance]:
    lines = gzip.decompress(_PROMPT_TEXTS.read_bytes()).decode(errors="replace").splitlines()
    for line in sorted(lines):
        match = _PROMPT_LINE.fullmatch(line)
        if match is not None and len(match[2].split()) >= _FEWEST_WORDS:
            path = _PROMPTS / f"{match[1]}.g722"
            if path.exists():
                yield Utterance(path, match[2].strip())


def _read_books() -> Iterator[Utterance]:
    for line in (_BOOKS / "transcription").read_text(encoding="utf-8").splitlines():
        match = _BOOK_LINE.fullmatch(line.strip())
        if match is not None and len(match[1].split()) >= _FEWEST_WORDS:
            yield Utterance(_BOOKS / f"{match[2]}.wav", match[1])


async def decode_utterances(utterances: Sequence[Utterance]) -> list[Samples]:
    """Return the sound of each utterance, i16 [samples] at 16 kHz."""
    return [await decode_audio(u.path, SAMPLING_RATE, u.path.name) for u in utterances]


def join_recordings(recordings: Sequence[Samples], seconds: float) -> Samples:
    """Return recordings with pauses of half a second between them, up to this length."""
    pause = np.zeros(round(_PAUSE_SECONDS * SAMPLING_RATE), np.int16)
    parts = [part for recording in recordings for part in (recording, pause)]
    return np.concatenate(parts)[: round(seconds * SAMPLING_RATE)]
