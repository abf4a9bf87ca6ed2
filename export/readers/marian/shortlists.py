"""Marian's binary lexical shortlists (marian-dev's src/data/shortlist.h)."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save

from models.files import read_file
from models.safetensors import Array

MAGIC = 0xF11A48D5013417F5
SHORTLIST_HEADER = (
    "magic",
    "checksum",
    "most frequent",
    "best",
    "offsets",
    "candidates",
)  # uint64 each
WORD = 2**64 - 1


def is_shortlist(path: Path) -> bool:
    """Return whether a file begins as Marian's binary shortlists do."""
    try:
        with path.open("rb") as file:
            return file.read(8) == MAGIC.to_bytes(8, "little")
    except OSError:
        return False


def read_shortlist(
    path: Path, vocab_sizes: tuple[int, int], problems: list[str], *, is_shared: bool
) -> bytes | None:
    """Return the bundle's `shortlist.safetensors`; what is wrong with the file is a problem.

    is_shared: source and target have one vocabulary; then a token may translate itself, as in
    Bergamot.
    """
    try:
        data = read_file(path)
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error}")
        return None
    wrong = _check_file(data)
    if not wrong:
        num_first, offsets, candidates = _parse_file(data)
        wrong = _check_contents(offsets, candidates, vocab_sizes)
    problems += [f"{path.name} {problem}" for problem in wrong]
    if wrong:
        return None
    if is_shared:
        offsets, candidates = _add_sources(offsets, candidates)
    return save(
        {
            "always": np.arange(min(num_first, vocab_sizes[1]), dtype=np.int32),
            "offsets": offsets.astype(np.int64),
            "candidates": candidates.astype(np.int32),
        }
    )


def _check_file(data: bytes) -> list[str]:
    size = 8 * len(SHORTLIST_HEADER)
    if len(data) < size:
        return [f"has {len(data)} bytes, its header alone has {size}"]
    header = dict(
        zip(
            SHORTLIST_HEADER,
            np.frombuffer(data, "<u8", len(SHORTLIST_HEADER)).tolist(),
            strict=True,
        )
    )
    if header["magic"] != MAGIC:
        return [f"is no binary shortlist: it begins with {header['magic']:#x}"]
    expected = size + 8 * header["offsets"] + 4 * header["candidates"]
    if len(data) != expected:
        return [f"has {len(data)} bytes, its header tells of {expected}"]
    if checksum(data[16:]) != header["checksum"]:
        return ["is damaged: its checksum is another"]
    return []


def _parse_file(data: bytes) -> tuple[int, Array, Array]:
    """Read how many of the most frequent tokens are always candidates, offsets and candidates."""
    _, _, num_first, _, num_offsets, num_candidates = np.frombuffer(
        data, "<u8", len(SHORTLIST_HEADER)
    )
    start = 8 * len(SHORTLIST_HEADER)
    offsets = np.frombuffer(data, "<u8", int(num_offsets), start).astype(np.int64)
    start += 8 * len(offsets)
    return int(num_first), offsets, np.frombuffer(data, "<u4", int(num_candidates), start)


def _check_contents(offsets: Array, candidates: Array, vocab_sizes: tuple[int, int]) -> list[str]:
    problems = []
    source_size, target_size = vocab_sizes
    if len(offsets) != source_size + 1:
        problems.append(f"tells of {len(offsets) - 1} source tokens, expected {source_size}")
    elif offsets[0] != 0 or offsets[-1] != len(candidates) or (np.diff(offsets) < 0).any():
        problems.append("has offsets that do not ascend from 0 to its number of candidates")
    if len(candidates) and candidates.max() >= target_size:
        problems.append(f"names token {candidates.max()} of a vocabulary of {target_size}")
    return problems


def _add_sources(offsets: Array, candidates: Array) -> tuple[Array, Array]:
    """Add every token to its own candidates, which stay sorted and distinct."""
    num_tokens = len(offsets) - 1
    sources = np.repeat(np.arange(num_tokens), np.diff(offsets))
    pairs = np.concatenate(
        [sources * num_tokens + candidates, np.arange(num_tokens) * (num_tokens + 1)]
    )
    sources, candidates = np.divmod(np.unique(pairs), num_tokens)
    return np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=num_tokens))]), candidates


def checksum(data: bytes) -> int:
    """Return the checksum of whole words of 8 bytes (marian-dev's src/common/hash.h, hashMem)."""
    seed = 0
    for word in np.frombuffer(data, "<u8", len(data) // 8).tolist():
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & WORD
    return seed
