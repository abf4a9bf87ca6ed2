"""Makes up input for parsers: bytes that are damaged, and JSON with other values in it."""

import copy
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))  # for each parser; without it a few examples
FEW, MANY = 15, 200

ODD_BYTES = (
    *(b"\xff" * 8, b"\0" * 8, b"\x80", b"\xed\xa0\x80", b'"', b"[", b"{", b"}", b"\\ud800", b"-1"),
    *(b"1e999", b"null", b"9" * 30, b"%", b"&", b"=", b"--", b"\r\n", b"{{", b"%}", b"&a ", b"*a"),
)
ODD_NUMBERS = (-1, 0, 2**31, 2**63, 2**64, -(2**63), 10**30, 1e308, float("inf"), float("nan"))
TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from(ODD_NUMBERS)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


def fuzz(strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Run a check on what a strategy makes up: always the same few, or others for so long."""
    end = time.monotonic() + SECONDS
    chosen = settings(
        max_examples=MANY if SECONDS else FEW,
        derandomize=not SECONDS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    is_first = True
    while is_first or time.monotonic() < end:
        is_first = False
        chosen(given(strategy)(lambda value: check(value)))()


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes in which some are changed, left out or put in, or whose end is missing."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        put_in = draw(st.binary(max_size=8) | st.sampled_from(ODD_BYTES))
        data[start : start + draw(st.sampled_from((0, 1, len(put_in), 2**20)))] = put_in
    return bytes(data)


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """A JSON document in which one value or two are others, or are missing."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        places = [*_places(document)]
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        if draw(st.integers(0, 4)) == 0:
            del holder[key]
        else:
            holder[key] = draw(VALUES)
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a document, as what holds it and its key there; of long lists the first."""
    if isinstance(value, dict | list):
        keys = [*value] if isinstance(value, dict) else range(len(value))
        for key in [*keys][:40]:
            yield value, key
            yield from _places(value[key])
