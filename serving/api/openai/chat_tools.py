"""Reads the tools of a chat, which of them may or must be called, and the calls of its messages."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from serving.errors import RequestError
from serving.pipelines.decoding import Structure
from serving.text.chat.tools import Function, grammar_of

MAX_TOOLS = 128


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class FunctionDefinition(_Said):
    """Describes a function. strict: arguments are always kept to their schema."""

    name: Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    strict: bool | None = None

    @field_validator("parameters")
    @classmethod
    def _are_of_an_object(cls, value: dict[str, Any]) -> dict[str, Any]:
        kinds = value.get("type", "object")
        if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
            raise ValueError(f"must be the schema of an object, not of {kinds}")
        return value


class Tool(_Said):
    type: Literal["function"]
    function: FunctionDefinition

    def as_template_reads_it(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class NamedFunction(_Said):
    name: str


class NamedChoice(_Said):
    type: Literal["function"]
    function: NamedFunction


class CalledFunction(_Said):
    name: str
    arguments: str


class ToolCall(_Said):
    """Holds a call of an earlier answer."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    def as_template_reads_it(self) -> dict[str, Any]:
        """Return the call with its arguments as an object, which templates write as JSON."""
        try:
            arguments = json.loads(self.function.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            message = "arguments of a tool call must be a JSON object"
            raise RequestError("messages", self.function.arguments, message)
        function = {"name": self.function.name, "arguments": arguments}
        return {"id": self.id, "type": self.type, "function": function}


def calls_structure(
    tools: list[Tool], choice: str | NamedChoice | None, several: bool
) -> Structure | None:
    """Return what an answer with these tools must look like; None if it may call none of them.

    Raises RequestError for a choice that is none of them.
    """
    if choice == "none" or (not tools and choice in (None, "auto")):
        return None
    functions = [Function(each.function.name, each.function.parameters) for each in tools]
    names = [each.name for each in functions]
    if len(tools) > MAX_TOOLS or len({*names}) < len(names):
        raise RequestError(
            "tools", len(tools), f"must be at most {MAX_TOOLS}, each of its own name"
        )
    if isinstance(choice, NamedChoice):
        functions = [each for each in functions if each.name == choice.function.name]
        several = False
    if not functions:
        raise RequestError("tool_choice", choice, "needs tools that it can choose from")
    must_call = choice not in (None, "auto")
    return Structure("grammar", grammar_of(functions, must_call, several), "tools")
