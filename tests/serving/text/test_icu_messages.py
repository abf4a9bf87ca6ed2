"""Tests where the branches of ICU messages lie."""

import pytest

from serving.text.icu_messages import find_arguments


@pytest.mark.parametrize(
    ("message", "branches"),
    [
        ("{n, plural, one {# cat} other {# cats}}", ["# cat", "# cats"]),
        ("a {n,plural,offset:1 =0{none}  other {many}} b", ["none", "many"]),
        ("{g, select, male {He {x} left} other {They}}", ["He {x} left", "They"]),
        ("{n, selectordinal, one {#st} other {#th}} {a.b, select, other {c}}", ["#st", "#th", "c"]),
        ("{n, plural, other {a '}' it''s b}}", ["a '}' it''s b"]),
        ("{g, select, other {{n, plural, other {x}}}}", ["{n, plural, other {x}}"]),
        ("{n, plural, one {broken", []),
        ("{n, plural, one {a} other}", []),
        ("{n, plural, }", []),
        ("{price, number} {d, date, long} {x}", []),
        ("{n, plural, other " + "{" * 100_000, []),
    ],
)
def test_branches(message: str, branches: list[str]) -> None:
    inner = [span for argument in find_arguments(message) for span in argument.branches]
    assert [message[span.start : span.end] for span in inner] == branches
