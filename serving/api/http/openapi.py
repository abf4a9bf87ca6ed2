"""What `/openapi.json` tells of a route: its body, its answers and its errors.

Handlers read their bodies themselves, so FastAPI knows none of this by itself.
"""

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

JSON = "application/json"
URL_ENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_REF = "#/components/schemas/{model}"
_ERRORS = {
    400: "The request is wrong; the error names the field.",
    404: "There is no such model.",
    413: "The request is too large.",
    429: "Too many requests are waiting; try again after `Retry-After` seconds.",
    500: "The server failed; its log names the request by its `X-Request-ID`.",
    503: "No engine runs, or none any more; try again after `Retry-After` seconds.",
    504: "The deadline that the request gave itself has passed.",
}
OF_ANY_ROUTE = (500, 503)
OF_A_MODEL = (404, *OF_ANY_ROUTE)
OF_A_BODY = tuple(_ERRORS)

Responses = dict[int | str, dict[str, Any]]


def responses(answer: Any, error: Any, statuses: Iterable[int]) -> Responses:
    """answer, error: their types."""
    told: Responses = {200: {"model": answer, "description": "Success"}}
    for status in statuses:
        told[status] = {"model": error, "description": _ERRORS[status]}
    return told


def text(media_type: str, description: str) -> dict[str, Any]:
    """An answer, or one form of it, that is no JSON."""
    return {"content": {media_type: {"schema": {"type": "string", "description": description}}}}


def body(cls: type[BaseModel], *media_types: str, example: dict[str, Any]) -> dict[str, Any]:
    """example: what `/docs` offers to try out."""
    told = {"schema": {"$ref": _REF.format(model=cls.__name__)}, "example": example}
    content = dict.fromkeys(media_types, told)
    return {"requestBody": {"required": True, "content": content}}


def describe_bodies(app: FastAPI, classes: Iterable[type[BaseModel]]) -> None:
    """Once all routes are there: put the schemas into the document that `body` refers to."""
    document = app.openapi()
    _, definitions = models_json_schema([(cls, "validation") for cls in classes], ref_template=_REF)
    schemas = document["components"]["schemas"]
    schemas |= definitions["$defs"]
    _forget_errors_of_fastapi(document, schemas)


def _forget_errors_of_fastapi(document: dict[str, Any], schemas: dict[str, Any]) -> None:
    """No parameter is checked by it, so none of its errors ever comes."""
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
