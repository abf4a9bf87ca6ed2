"""Constrains an answer to calls of tools, and reads them from it while it comes."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from serving.text.constraints.json_formats import with_valid_dates

TOOL_CALL_BEGIN, TOOL_CALL_END = "<tool_call>", "</tool_call>"
_NAME, _ARGUMENTS = '{"name": ', ', "arguments": '
_CLOSE = f"}}\n{TOOL_CALL_END}"  # JSON has no line break as it is, so no argument can hold it
_HEAD = re.compile(rf"\n{re.escape(_NAME)}(\"[^\"]*\"){re.escape(_ARGUMENTS)}")
_COMPACT = {"whitespace_pattern": "[ ]?", "lenient": False}


def has_tools(template: str) -> bool:
    """Return whether a template shows tools, in the form that `ToolCallParser` reads."""
    shows = re.search(r"\btools\b", template) is not None
    return (
        shows
        and TOOL_CALL_BEGIN in template
        and "arguments" in template
        and "<function=" not in template
    )


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A tool of the kind function. parameters: the JSON schema of its arguments, an object."""

    name: str
    parameters: dict[str, Any]


def tool_call_grammar(functions: list[ToolFunction], must_call: bool, several: bool) -> str:
    """Return the grammar, in Lark's notation, of an answer that may, or must, call functions."""
    more = f' ("\\n{TOOL_CALL_BEGIN}" call)*' if several else ""
    calls = f"call{more}"
    rules = [f'start: "{TOOL_CALL_BEGIN}" {calls}'] if must_call else _plain_text_or(calls)
    names = " | ".join(f"function_{number}" for number in range(len(functions)))
    rules.append(f'call: "\\n" ({names}) "\\n{TOOL_CALL_END}"')
    for number, function in enumerate(functions):
        opening = json.dumps(f"{_NAME}{json.dumps(function.name)}{_ARGUMENTS}")
        schema = {**function.parameters, "type": "object", "x-guidance": _COMPACT}
        rules.append(f'function_{number}: {opening} arguments_{number} "}}"')
        rules.append(f"arguments_{number}: %json {with_valid_dates(json.dumps(schema))}")
    return "\n".join(rules)


def _plain_text_or(calls: str) -> list[str]:
    """Allow text without a call, or any that ends where the first one begins."""
    return [
        f"start: PLAIN | head {calls}",
        f"head[lazy]: /(.|\\n)*{TOOL_CALL_BEGIN}/",
        f"PLAIN: /(.|\\n)*/ & ~/(.|\\n)*{TOOL_CALL_BEGIN}(.|\\n)*/",
    ]


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """The next piece of an answer: of its text, or of the arguments of a call.

    call: number of the call, from 0; None of text. name: of its function, with its first piece.
    """

    text: str
    call: int | None = None
    name: str | None = None


class ToolCallParser:
    """Reads an answer that comes in pieces, and tells its text from its calls."""

    def __init__(self) -> None:
        self._buffer = ""
        self._is_inside = False  # a call whose arguments have begun
        self.num_calls = 0

    def push(self, text: str) -> Iterator[AnswerDelta]:
        """Yield what is certain."""
        self._buffer += text
        while (piece := self._next_delta()) is not None:
            yield piece

    def finish(self) -> Iterator[AnswerDelta]:
        """Yield what is left where the answer was cut."""
        if self._is_inside:
            if self._buffer and not self._buffer.startswith(_CLOSE[:2]):
                yield AnswerDelta(self._buffer, self.num_calls - 1)
        elif self._buffer.strip() and not self._buffer.startswith(TOOL_CALL_BEGIN):
            yield AnswerDelta(self._buffer)
        self._buffer = ""

    def _next_delta(self) -> AnswerDelta | None:
        if self._is_inside:
            return self._read_arguments()
        if self.num_calls:  # between calls there is nothing to tell
            self._buffer = self._buffer.lstrip("\n")
        if self._buffer.startswith(TOOL_CALL_BEGIN):
            return self._read_head()
        return self._take_text_before(TOOL_CALL_BEGIN)

    def _read_head(self) -> AnswerDelta | None:
        """Read the head of a call, once it is whole."""
        head = _HEAD.match(self._buffer, len(TOOL_CALL_BEGIN))
        if head is None:
            return None
        self._buffer = self._buffer[head.end() :]
        self._is_inside = True
        self.num_calls += 1
        return AnswerDelta("", self.num_calls - 1, json.loads(head[1]))

    def _read_arguments(self) -> AnswerDelta | None:
        number = self.num_calls - 1
        if (piece := self._take_text_before(_CLOSE)) is not None:
            return AnswerDelta(piece.text, number)
        if self._buffer.startswith(_CLOSE):
            self._is_inside = False
            self._buffer = self._buffer.removeprefix(_CLOSE)
            return self._next_delta()
        return None

    def _take_text_before(self, mark: str) -> AnswerDelta | None:
        """Take what stands before a mark, or before what may become one."""
        place = self._buffer.find(mark)
        end = len(self._buffer) - _overlap(self._buffer, mark) if place < 0 else place
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        return AnswerDelta(text) if text else None


def _overlap(text: str, mark: str) -> int:
    """Return how many characters at the end of a text may begin a mark."""
    lengths = range(min(len(text), len(mark) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(mark[:length])), 0)
