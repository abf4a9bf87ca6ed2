"""Describe routes for `/openapi.json`: their bodies, answers and errors.

Handlers read their bodies themselves, so FastAPI does not know them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

JSON = "application/json"
URL_ENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
EVENTS = "text/event-stream"
_REF = "#/components/schemas/{model}"
_ERRORS = {
    400: "The request is wrong; the error names the field.",
    401: "The request has no key that the server knows.",
    403: "The request has no key that the server knows.",
    404: "There is no such model.",
    405: "The path takes other methods.",
    413: "The request is too large.",
    415: "The body, or the answer that is asked for, is in a format or an encoding that is not "
    "spoken here.",
    429: "Too many requests wait, or came with this key; try again after `Retry-After` seconds.",
    456: "The key has used up its quota, or keeps as many glossaries as it may.",
    500: "The server failed; its log names the request by its `X-Request-ID`.",
    503: "No engine runs, or none any more; try again after `Retry-After` seconds.",
    504: "The deadline that the request gave itself has passed.",
}
COMMON_STATUSES = (500, 503)
MODEL_STATUSES = (404, *COMMON_STATUSES)
BODY_STATUSES = (400, 404, 413, 415, 429, 500, 503, 504)
_BEARER = "Bearer"

Responses = dict[int | str, dict[str, Any]]
# By name, as in `components.securitySchemes`.
SecuritySchemes = dict[str, dict[str, Any]]


def responses(answer: Any, error: Any, statuses: Iterable[int]) -> Responses:
    """Describe an answer and errors by their types.

    Errors are only referenced, and `describe` adds their schemas: FastAPI would build them again
    for each route and status, which takes long.
    """
    described: Responses = {200: {"model": answer, "description": "Success"}}
    content = {JSON: {"schema": {"$ref": _REF.format(model=error.__name__)}}}
    for status in statuses:
        described[status] = {"content": content, "description": _ERRORS[status]}
    return described


def describe_text(media_type: str, description: str) -> dict[str, Any]:
    """Describe an answer, or one form of it, that is not JSON."""
    return {"content": {media_type: {"schema": {"type": "string", "description": description}}}}


def describe_events(description: str) -> dict[str, Any]:
    """Describe server-sent events; the schema is of each event."""
    event = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
    return {"content": {EVENTS: {"schema": event | {"description": description}}}}


def describe_keys(
    key_scheme: str, key_field: str | None, is_operators_key: bool
) -> SecuritySchemes:
    """Describe the places where a request may have its key.

    key_scheme: stands before a key in the `Authorization` header.
    key_field: the field that may have the key instead, in the query or the body. OpenAPI has no
        schemes for bodies, so only the query is described here.
    """
    scheme: dict[str, Any]
    if key_scheme == _BEARER:
        whose = "An operator's key" if is_operators_key else "An API key"
        text = f"{whose}, sent as `Authorization: {_BEARER} KEY`."
        scheme = {"type": "http", "scheme": _BEARER.lower(), "description": text}
    else:
        # Swagger UI and client generators send no other scheme of HTTP than Basic and Bearer.
        text = f"An API key behind the word `{key_scheme}` and a space: `{key_scheme} KEY`."
        scheme = {"type": "apiKey", "in": "header", "name": "Authorization", "description": text}
    schemes = {"Operator" if is_operators_key else key_scheme: scheme}
    if key_field:
        text = f"An API key in the query; the body may have it instead, as its field `{key_field}`."
        schemes[key_field] = {"type": "apiKey", "in": "query", "name": key_field}
        schemes[key_field]["description"] = text
    return schemes


def require_one_of(schemes: SecuritySchemes, is_optional: bool) -> dict[str, Any]:
    """Return the field of an operation that says which keys it takes: one of `schemes`."""
    alternatives: list[dict[str, list[str]]] = [{name: []} for name in schemes]
    return {"security": [{}, *alternatives] if is_optional else alternatives}


@dataclass(frozen=True)
class DescribedBody:
    """The description of a request's body. example: a body that `/docs` offers to try."""

    cls: type[BaseModel]
    media_types: tuple[str, ...]
    example: Mapping[str, Any]

    @property
    def operation_fields(self) -> dict[str, Any]:
        schema = {"$ref": _REF.format(model=self.cls.__name__)}
        content = {"schema": schema, "example": dict(self.example)}
        body = {"required": True, "content": dict.fromkeys(self.media_types, content)}
        return {"requestBody": body}


def describe(
    app: FastAPI,
    bodies: Iterable[type[BaseModel]],
    errors: Iterable[Any],
    security_schemes: SecuritySchemes,
) -> None:
    """Add the schemas that routes refer to. The document is made on demand."""
    without_schemas = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = without_schemas()
            _add_schemas(document, bodies, errors)
            document["components"]["securitySchemes"] = security_schemes
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation has it


def _add_schemas(
    document: dict[str, Any], bodies: Iterable[type[BaseModel]], errors: Iterable[Any]
) -> None:
    _, definitions = models_json_schema([(cls, "validation") for cls in bodies], ref_template=_REF)
    schemas = document["components"]["schemas"]
    schemas |= definitions["$defs"]
    for error in errors:
        schema = TypeAdapter(error).json_schema(ref_template=_REF, mode="serialization")
        schemas |= schema.pop("$defs", {}) | {error.__name__: schema}
    _drop_errors_of_fastapi(document, schemas)
    for path in document["paths"].values():
        for operation in path.values():
            operation["summary"] = _first_clause(operation["description"])


def _first_clause(description: str) -> str:
    """Return what a call does, in a few words; FastAPI takes the names of functions."""
    clause = re.split(r"[.;:](?:\s|$)", description, maxsplit=1)[0]
    return " ".join(clause.replace("`", "").split())


def _drop_errors_of_fastapi(document: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Remove FastAPI's own errors, which never occur because it checks no parameters."""
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
