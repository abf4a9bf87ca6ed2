"""What defines a protocol: its paths, the shape of its errors, and its names for fields.

Each route knows its protocol, so that errors of handlers, middleware and streams get the right
shape without looking at paths.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.types import Scope
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.error_responses import message_of, status_of
from serving.api.http.openapi import OF_ANY_ROUTE, Responses, responses
from serving.errors import RequestError

ErrorShape = Callable[[int, BaseException], dict[str, Any]]


@dataclass(frozen=True)
class Protocol:
    """Holds what one protocol says in its own way.

    name: the label of its requests in the metrics.
    prefix: the beginning of its paths, without a slash at its end; empty at the root.
    error_shape: makes the body of an error out of its status and the error.
    error_type: the type of these bodies, for the OpenAPI document.
    field_names: from what pipelines and engine call a field to what its clients do. It is the only
        place where a field of an error changes its name: bodies name their own fields as clients
        write them, and what is beneath the API has its own words.
    key_scheme: what stands before a key in the `Authorization` header.
    key_field: the field that may hold the key instead, if there is one.
    statuses: of errors for which its clients expect another one than `status_of` has.
    """

    name: str
    prefix: str
    error_shape: ErrorShape
    error_type: Any
    field_names: Mapping[str, str] = field(default_factory=dict)
    key_scheme: str = "Bearer"
    key_field: str | None = None
    statuses: Mapping[type[BaseException], int] = field(default_factory=dict)

    @property
    def key_place(self) -> str:
        """Tell clients where to show their key."""
        field_too = f", or the field {self.key_field}" if self.key_field else ""
        return f"Authorization: {self.key_scheme} KEY{field_too}"

    def report(self, error: BaseException) -> tuple[int, dict[str, Any]]:
        """Make status and body of the answer to an error, its field called as clients call it."""
        own = (status for cls, status in self.statuses.items() if isinstance(error, cls))
        status = next(own, status_of(error))
        if isinstance(error, RequestError) and error.field in self.field_names:
            error = error.with_field(self.field_names[error.field])
        return status, self.error_shape(status, error)

    def owns(self, path: str) -> bool:
        """Check that `path` lies beneath the prefix."""
        return not self.prefix or path.startswith(self.prefix + "/")

    def router(self, tag: str) -> APIRouter:
        """Make a router beneath the prefix, whose routes carry this protocol."""
        return APIRouter(prefix=self.prefix, tags=[tag], route_class=self.route_class)

    @property
    def route_class(self) -> type["ProtocolRoute"]:
        """Make a class of routes that carry this protocol, as FastAPI wants it."""
        return type("ProtocolRoute", (ProtocolRoute,), {"protocol": self})

    def responses(self, answer: Any, statuses: Sequence[int]) -> Responses:
        """Describe an answer of type `answer`, and errors with `statuses`, for OpenAPI."""
        return responses(answer, self.error_type, statuses)

    def refusal(self, status: int) -> Responses:
        """Describe a route that refuses whoever comes, for OpenAPI."""
        described = responses(None, self.error_type, (status, *OF_ANY_ROUTE))
        del described[200]
        return described


class ProtocolRoute(APIRoute):
    """Carries the protocol that it is a route of."""

    protocol: Protocol


def protocol_at(scope: Scope, protocols: Sequence[Protocol]) -> Protocol:
    """Return the protocol of the route that was found, be it for another method.

    Where no route was, the protocol with the longest prefix of the path answers.
    """
    route = scope.get("route")
    if isinstance(route, ProtocolRoute):
        return route.protocol
    path = path_of(scope)
    return max((each for each in protocols if each.owns(path)), key=lambda each: len(each.prefix))


def path_of(scope: Scope) -> str:
    """Return the path as the routes know it, without what a server in front has put before it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class PlainError(TypedDict):
    error: str


def plain_error(status: int, error: BaseException) -> dict[str, Any]:
    return {"error": message_of(error)}
