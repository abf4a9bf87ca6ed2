"""Makes the tables of docs/layers.md: functions and classes that modules and graphs are made of.

`python -m tests.docs.layers_tables` writes them where they stand.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs" / "layers.md"
START, END = "<!-- layers -->\n", "<!-- /layers -->"
SECTIONS = {"Of torch modules": "models/layers", "Of graphs": "export/layers"}
WITH_METHODS = {"Layers", "TranslatorGraph", "VocabularyLayers"}  # a graph or module calls these
SELF = ("self", "cls")
SENTENCE_END = re.compile(r"(?<! )(?<! al)\. (?=[A-Z`])")

Definition = ast.FunctionDef | ast.ClassDef


def tables() -> str:
    parts = [f"## {title}\n\n{''.join(_files(ROOT / f))}" for title, f in SECTIONS.items()]
    return "\n" + "".join(parts)


def tables_that_stand() -> str:
    return PLACE.read_text(encoding="utf-8").partition(START)[2].partition(END)[0]


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if rows := "".join(_rows(tree.body)):
            about = _first_sentence(ast.get_docstring(tree))
            yield f"### `{path.relative_to(ROOT)}`\n\n{about}\n\n| | |\n|---|---|\n{rows}\n"


def _rows(body: list[ast.stmt], owner: str = "") -> Iterator[str]:
    for node in body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        about = _first_sentence(ast.get_docstring(node))
        yield f"| `{owner}{_signature(node)}` | {about.replace('|', chr(92) + '|')} |\n"
        if isinstance(node, ast.ClassDef) and node.name in WITH_METHODS:
            yield from _rows(node.body, f"{node.name}.")


def _signature(node: Definition) -> str:
    """Return a call with the names of its arguments; a class's are those of its `__init__`."""
    if isinstance(node, ast.FunctionDef):
        if any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list):
            return node.name
        return f"{node.name}({', '.join(_arguments(node))})"
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return f"{node.name}({', '.join(_arguments(part))})"
    return node.name


def _arguments(node: ast.FunctionDef) -> Iterator[str]:
    arguments = node.args
    yield from (a.arg for a in arguments.posonlyargs + arguments.args if a.arg not in SELF)
    if arguments.vararg:
        yield f"*{arguments.vararg.arg}"
    elif arguments.kwonlyargs:
        yield "*"
    yield from (a.arg for a in arguments.kwonlyargs)


def _first_sentence(docstring: str | None) -> str:
    text = " ".join(inspect.cleandoc(docstring or "").partition("\n\n")[0].split())
    end = SENTENCE_END.search(text)
    return text[: end.start() + 1] if end else text


if __name__ == "__main__":
    text = PLACE.read_text(encoding="utf-8")
    before, rest = text.split(START)
    PLACE.write_text(before + START + tables() + END + rest.split(END)[1], encoding="utf-8")
