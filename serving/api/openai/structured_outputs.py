"""Reads what an output must look like, in every way that OpenAI's and vLLM's clients say it."""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving.errors import RequestError
from serving.pipelines.decoding import Structure, StructureKind


class JsonSchema(BaseModel):
    """Holds a schema. name, description and strict are OpenAI's; it is always kept to strictly."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    json_schema: dict[str, Any] = Field(alias="schema")


class ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def structures(self) -> list[Structure]:
        if (self.json_schema is not None) != (self.type == "json_schema"):
            message = 'must have a json_schema if its type is "json_schema", and only then'
            raise RequestError("response_format", self.type, message)
        if self.json_schema is not None:
            return [_structure("response_format", "json", self.json_schema.json_schema)]
        if self.type == "json_object":
            return [Structure("json_object", "", "response_format")]
        return []


class StructuredOutputs(BaseModel):
    """Holds vLLM's fields, of which one may be given."""

    model_config = ConfigDict(extra="forbid", strict=True)

    json_schema: str | dict[str, Any] | None = Field(default=None, alias="json")
    json_object: Literal[True] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None

    def structures(self, field: str) -> list[Structure]:
        """List all that are asked for. field: what clients put before their names."""
        found = [
            _structure(f"{field}{kind}", kind, value)
            for kind, value in self._given()
            if value is not None
        ]
        if self.json_object:
            found.append(Structure("json_object", "", f"{field}json_object"))
        return found

    def _given(self) -> list[tuple[StructureKind, Any]]:
        return [
            ("json", self.json_schema),
            ("regex", self.regex),
            ("choice", self.choice),
            ("grammar", self.grammar),
        ]


def only_one(structures: list[Structure]) -> Structure | None:
    if len(structures) > 1:
        first, second, *_ = structures
        raise RequestError(second.field, second.value, f"cannot be combined with {first.field}")
    return structures[0] if structures else None


def _structure(field: str, kind: StructureKind, value: Any) -> Structure:
    if isinstance(value, list):
        return Structure(kind, tuple(value), field)
    return Structure(kind, value if isinstance(value, str) else json.dumps(value), field)
