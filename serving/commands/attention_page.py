"""Writes attention as one page that asks nobody for anything: its code, style and numbers stand
within it, and a browser runs and loads nothing else.

The code is that of the page at `/`, whose modules become one here.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serving.commands.attention_views import View
from serving.errors import RequestError

_FOLDER = Path(__file__).parents[1] / "api" / "page"
_MODULES = (
    *(_FOLDER / "common" / f"{name}.js" for name in ("elements", "messages")),
    *(_FOLDER / "attention" / f"{name}.js" for name in ("weights", "lines", "heads", "view")),
    Path(__file__).with_name("attention_page.js"),
)
_MESSAGES = _FOLDER / "messages/en.json"
_STYLES = (_FOLDER / "common/base.css", _FOLDER / "attention/attention.css")
_MOST_WEIGHTS = 12 * 2**20  # each a byte: what browsers open at once, and mail carries
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1></header>
<noscript><p>This page needs JavaScript.</p></noscript>
<main id="sentences"></main>
<script type="application/json" id="messages">{messages}</script>
<script type="application/json" id="data">{data}</script>
<script type="module">{code}</script>
</body>
</html>
"""


def write_page(path: Path, title: str, sentences: Sequence[Sequence[View]]) -> None:
    """Write a page of all kinds of each sentence. Raises RequestError and OSError."""
    _check_size(sum(view.weights.size for views in sentences for view in views), title)
    path.write_text(_page(title, sentences), encoding="utf-8")


def _check_size(num_weights: int, title: str) -> None:
    if num_weights > _MOST_WEIGHTS:
        message = f"has {num_weights:,} weights, a page holds {_MOST_WEIGHTS:,}"
        raise RequestError("sentence", title, f"{message}: choose by --kind, --layer or --head")


def policy(code: str, style: str) -> str:
    """Allow this code and this style, and nothing else."""
    rules = {
        "default-src": "'none'",
        "script-src": _hash(code),
        "style-src": _hash(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _page(title: str, sentences: Sequence[Sequence[View]]) -> str:
    code, style = "\n".join(_code()), "\n".join(map(_read, _STYLES))
    return _PAGE.format(
        policy=policy(code, style),
        title=html.escape(title),
        style=style,
        messages=_to_json(json.loads(_read(_MESSAGES))),
        data=_to_json([list(map(_pack_view, views)) for views in sentences]),
        code=code,
    )


def _to_json(value: Any) -> str:
    """Return JSON that can stand in an element: no text in it ends the element."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _code() -> Iterator[str]:
    for path in _MODULES:
        yield _EXPORT.sub("", _IMPORT.sub("", _read(path)))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _pack_view(view: View) -> dict[str, Any]:
    """Hold the root of each weight as a byte: so small ones keep digits, too."""
    roots = np.round(255 * np.sqrt(view.weights)).astype(np.uint8)
    return {
        "kind": view.kind,
        "rows": view.rows,
        "columns": view.columns,
        "layers": view.layers,
        "heads": view.heads,
        "weights": base64.b64encode(roots.tobytes()).decode(),
    }
