"""Renders the chart where Helm cannot be had: the part of Go's templates that the chart uses.

Where Helm is there, a test compares the two.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-?)\s*(/\*.*?\*/|(?:\"[^\"]*\"|`[^`]*`|[^}])*?)\s*(-?)\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|:=|[=|(,]|\)(?:\.\w+)*|-?\d+|\$?[\w]+(?:\.\w+)*|\$(?:\.\w+)*|(?:\.\w+)+|\."
)
_KEYWORDS = ("if", "with", "range", "define")


class TemplateFailure(Exception):
    """Raised where a template calls `fail`."""


@dataclass
class Block:
    """A part of a template: text, an action, or `if`, `with` or `range` with two branches."""

    keyword: str
    code: str = ""
    body: list["Block"] = field(default_factory=list)
    otherwise: list["Block"] = field(default_factory=list)


class Chart:
    """A chart's templates, read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._metadata = yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))
        self._values = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8"))
        self._defined: dict[str, list[Block]] = {}
        self._files: dict[str, list[Block]] = {}
        for path in sorted((folder / "templates").iterdir()):
            self._files[path.name] = self._parse(path.read_text(encoding="utf-8"))

    def render(self, values: dict[str, Any], release: str = "attendant") -> dict[str, str]:
        """Return the text of each file. Raise TemplateFailure where a template fails."""
        metadata = {key[0].upper() + key[1:]: value for key, value in self._metadata.items()}
        root = {
            "Values": _merge(self._values, values),
            "Chart": metadata,
            "Release": {"Name": release, "Namespace": "default", "Service": "Helm"},
            "Files": {"Get": lambda name: (self._folder / name).read_text(encoding="utf-8")},
        }
        return {
            name: Rendering(self._defined, root).render(blocks)
            for name, blocks in self._files.items()
            if not name.startswith("_")
        }

    def _parse(self, text: str) -> list[Block]:
        blocks: list[Block] = []
        open_blocks: list[tuple[Block, list[Block]]] = [(Block(""), blocks)]
        position = 0
        strip_left = False
        for match in _ACTION.finditer(text):
            piece = text[position : match.start()]
            piece = piece.lstrip() if strip_left else piece
            open_blocks[-1][1].append(Block("text", piece.rstrip() if match[1] else piece))
            strip_left, position = bool(match[3]), match.end()
            keyword, _, code = match[2].partition(" ")
            block, branch = open_blocks[-1]
            if keyword in _KEYWORDS:
                inner = Block(keyword, code)
                branch.append(inner)
                open_blocks.append((inner, inner.body))
            elif keyword == "else":
                open_blocks[-1] = (block, block.otherwise)
                if code:  # `else if` is an `if` within, which ends with the outer one
                    inner = Block("if", code.removeprefix("if "))
                    block.otherwise.append(inner)
                    open_blocks[-1] = (inner, inner.body)
            elif keyword == "end":
                if block.keyword == "define":
                    self._defined[json.loads(block.code)] = block.body
                open_blocks.pop()
            elif not match[2].startswith("/*"):
                branch.append(Block("action", match[2]))
        tail = text[position:]
        blocks.append(Block("text", tail.lstrip() if strip_left else tail))
        return blocks


class Rendering:
    """Evaluates blocks. dot: the value of `.`. scopes: variables by their names, the inner last."""

    def __init__(
        self,
        defined: dict[str, list[Block]],
        dot: Any,
        scopes: list[dict[str, Any]] | None = None,
    ) -> None:
        self._defined = defined
        self._dot = dot
        self._scopes = scopes or [{"$": dot}]
        self._functions: dict[str, Callable[..., Any]] = {**_FUNCTIONS, "include": self._include}

    def render(self, blocks: list[Block]) -> str:
        return "".join(self._render_block(block) for block in blocks)

    def _include(self, name: str, dot: Any) -> str:
        return Rendering(self._defined, dot).render(self._defined[name])

    def _render_block(self, block: Block) -> str:
        if block.keyword == "text":
            return block.code
        if block.keyword == "define":
            return ""
        if block.keyword == "action":
            return self._run_action(block.code)
        names, value = self._evaluate_declaration(block.code)
        if block.keyword == "if":
            return self._render_scope(block.body if value else block.otherwise, self._dot)
        if block.keyword == "with" or not value:
            return self._render_scope(block.body if value else block.otherwise, value or self._dot)
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return "".join(
            self._render_scope(block.body, item, dict(zip(names, (index, item), strict=False)))
            for index, item in items
        )

    def _render_scope(
        self, blocks: list[Block], dot: Any, variables: dict[str, Any] | None = None
    ) -> str:
        scopes = [*self._scopes, variables or {}]
        return Rendering(self._defined, dot, scopes).render(blocks)

    def _run_action(self, code: str) -> str:
        names, value = self._evaluate_declaration(code)
        return "" if names else _write(value)

    def _evaluate_declaration(self, code: str) -> tuple[list[str], Any]:
        """Return the variables that are declared or set, if any, and the value."""
        tokens = _TOKEN.findall(code)
        sign = next((token for token in tokens if token in (":=", "=")), "")
        if not sign:
            return [], self._evaluate(tokens)
        place = tokens.index(sign)
        names = [token for token in tokens[:place] if token != ","]
        value = self._evaluate(tokens[place + 1 :])
        scopes = [scope for scope in reversed(self._scopes) if names[0] in scope]
        (self._scopes[-1] if sign == ":=" else scopes[0])[names[0]] = value
        return names, value

    def _evaluate(self, tokens: list[str]) -> Any:
        """Evaluate a pipeline; the last argument of each command is the value before it."""
        value: Any = None
        for number, command in enumerate(_split(tokens)):
            arguments = [*self._read_operands(command)]
            if number:
                arguments.append(value)
            function, *rest = arguments
            value = function(*rest) if callable(function) else function
        return value

    def _read_operands(self, tokens: list[str]) -> Iterator[Any]:
        place = 0
        while place < len(tokens):
            token = tokens[place]
            place += 1
            if token == "(":
                depth, start = 1, place
                while depth:
                    depth += _change_of_depth(tokens[place])
                    place += 1
                value = self._evaluate(tokens[start : place - 1])
                yield _get_field(value, tokens[place - 1].removeprefix(")"))
            elif token in self._functions and place > 1:
                yield self._functions[token]()
            else:
                yield self._read_operand(token)

    def _read_operand(self, token: str) -> Any:
        if token.startswith('"'):
            return json.loads(token)
        if token.lstrip("-").isdecimal():
            return int(token)
        if token.startswith("."):
            return _get_field(self._dot, token)
        if token.startswith("$"):
            name, _, path = token.partition(".")
            scope = next(scope for scope in reversed(self._scopes) if name in scope)
            return _get_field(scope[name], f".{path}")
        return {"true": True, "false": False}.get(token, self._functions.get(token))


def _split(tokens: list[str]) -> list[list[str]]:
    """Return the commands of a pipeline."""
    commands: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += _change_of_depth(token)
        if token == "|" and not depth:
            commands.append([])
        else:
            commands[-1].append(token)
    return commands


def _change_of_depth(token: str) -> int:
    return 1 if token == "(" else -1 if token.startswith(")") else 0


def _get_field(value: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        value = (value or {}).get(name)
    return value


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _merge(values: Any, overrides: Any) -> Any:
    """Return values with those of overrides before them, as Helm merges maps."""
    if not (isinstance(values, dict) and isinstance(overrides, dict)):
        return overrides
    return values | {key: _merge(values.get(key), value) for key, value in overrides.items()}


def _fail(message: str) -> None:
    raise TemplateFailure(message)


def _quote(value: Any) -> str:
    return json.dumps(_write(value), ensure_ascii=False)


def _set(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    values[key] = value
    return values


def _unset(values: dict[str, Any], key: str) -> dict[str, Any]:
    values.pop(key, None)
    return values


def _from_yaml(text: str) -> Any:
    value = yaml.safe_load(text)
    return value if isinstance(value, dict) else {"Error": "not a map"}


def _to_yaml(value: Any) -> str:
    value = json.loads(json.dumps(value))  # what occurs twice is written twice
    return yaml.safe_dump(value, width=10**6).rstrip("\n")


def _indent_lines(width: int, text: str) -> str:
    return "\n" + "\n".join(" " * width + line if line else line for line in text.split("\n"))


def _find_true(*values: Any) -> Any:
    return next((value for value in values if value), values[-1])


def _find_false(*values: Any) -> Any:
    return next((value for value in values if not value), values[-1])


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda *numbers: sum(numbers),
    "and": _find_false,
    "append": lambda items, item: [*items, item],
    "ceil": math.ceil,
    "contains": lambda part, text: part in text,
    "default": lambda default, value=None: value or default,
    "dict": lambda *items: dict(zip(items[::2], items[1::2], strict=True)),
    "eq": lambda one, other: one == other,
    "fail": _fail,
    "first": lambda items: items[0],
    "fromJson": json.loads,
    "fromYaml": _from_yaml,
    "gt": lambda one, other: one > other,
    "hasKey": lambda values, key: key in values,
    "hasPrefix": lambda prefix, text: text.startswith(prefix),
    "int": int,
    "join": lambda separator, items: separator.join(items),
    "list": lambda *items: [*items],
    "merge": lambda values, overrides: _merge(overrides, values),
    "mul": lambda *numbers: math.prod(numbers),
    "nindent": _indent_lines,
    "not": lambda value: not value,
    "or": _find_true,
    "printf": lambda form, *values: form % values,
    "quote": _quote,
    "replace": lambda old, new, text: text.replace(old, new),
    "set": _set,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "ternary": lambda yes, no, condition: yes if condition else no,
    "toJson": json.dumps,
    "toString": _write,
    "toYaml": _to_yaml,
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trunc": lambda length, text: text[:length],
    "uniq": lambda items: [*dict.fromkeys(items)],
    "unset": _unset,
}
