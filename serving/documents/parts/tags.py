"""Finds what is no language in short texts: tags, and marks that programs fill in."""

import re
from collections.abc import Iterator

from serving.documents.parts.spans import Mark, Role

_MARK = re.compile(
    r"""
    (?P<tag> </?[A-Za-z][^<>]*> )
    | (?P<other>
        \{\\[^{}]*\}                   # {\an8}, of subtitles
        | \$?\{[^{}\n]*\}               # {name}, ${name}
        | %(?:\([^()\s]+\)|\d+\$)?     # %(name)d, %1$s
          [-+#0]*\d*(?:\.\d+)?(?:hh?|ll?|[zjtL])?[diouxXeEfgGcrsa@]
        | %%
    )
    """,
    re.VERBOSE,
)


def pieces_of(text: str) -> Iterator[str | Mark]:
    """Yield a text as its words and its marks."""
    end = 0
    for found in _MARK.finditer(text):
        yield text[end : found.start()]
        yield Mark(found.group()) if found["other"] else tag_mark(found.group())
        end = found.end()
    yield text[end:]


def tag_mark(raw: str) -> Mark:
    """Return the mark that a tag is, as it is written; comments and the like stand alone."""
    if not raw.lstrip("</")[:1].isalpha() or raw.endswith("/>"):
        return Mark(raw)
    role = Role.CLOSES if raw.startswith("</") else Role.OPENS
    name = re.split(r"[\s>]", raw.lstrip("</"), maxsplit=1)[0]
    return Mark(raw, role, name.lower())
