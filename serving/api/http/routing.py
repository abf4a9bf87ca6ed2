"""Routes: each is registered once, with its protocol, its description and its key check.

Starlette matches them and FastAPI describes them in `/openapi.json`. FastAPI's own handlers would
solve dependencies and validate parameters, which nothing here uses: they take 40 to 100 µs a
request, and to find one of all routes at most 20 µs.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from serving.api.http.authentication import Authenticator, KeyCheck
from serving.api.http.openapi import DescribedBody, Responses, require_one_of
from serving.api.http.protocol import ENDS, ErrorReport, Protocol, error_response, path_of
from serving.errors import KeyRefused

# Takes the request, and the parameters of the path by name.
Handler = Callable[..., Awaitable[Response]]


class ProtocolRoute(APIRoute):
    """A route of one protocol.

    authenticator: checks the key before the handler is called; None if the route needs no key, or
        its handler reads the key from the body.
    key_check: where the key is checked, if the server has keys.
    body: the description of the body that the handler reads.
    description: keyword arguments of FastAPI's `APIRoute`.
    """

    def __init__(
        self,
        protocol: Protocol,
        method: str,
        path: str,
        handler: Handler,
        authenticator: Authenticator | None = None,
        key_check: KeyCheck = KeyCheck.NONE,
        body: DescribedBody | None = None,
        **description: Any,
    ) -> None:
        super().__init__(
            protocol.prefix + path, handler, methods=[method], response_model=None, **description
        )
        self.protocol, self.key_check, self.body = protocol, key_check, body
        self._handler, self._authenticator = handler, authenticator
        self.app = self._respond  # what Starlette calls for a request that matches

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        # Most routes are of one path, and most requests of another: to compare their ends saves up
        # to 20 µs a request. What a proxy has added to the path stands at its beginning.
        if not self.param_convertors and not scope["path"].endswith(self.path):
            return Match.NONE, {}
        return super().matches(scope)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            if self._authenticator is not None:
                self._authenticator.check(self.protocol, request)
            response = await self._handler(request, **request.path_params)
        except ENDS:
            raise
        except BaseException as error:  # a panic of a library is not an Exception
            response = error_response(error, *self.protocol.report(error))
        await response(scope, receive, send)


class Routes:
    """Collects the routes of a protocol, each with its description for OpenAPI."""

    def __init__(
        self, protocol: Protocol, tag: str, authenticator: Authenticator | None = None
    ) -> None:
        self.routes: list[ProtocolRoute] = []
        self._protocol, self._tag, self._authenticator = protocol, tag, authenticator

    def add(
        self,
        method: str,
        path: str,
        handler: Handler,
        answer: Any,
        statuses: Sequence[int],
        *,
        protocol: Protocol | None = None,
        status: int = 200,
        content: Mapping[str, Any] | None = None,
        other_answers: Mapping[str, Any] | None = None,
        other_statuses: Responses | None = None,
        body: DescribedBody | None = None,
        extra: Mapping[str, Any] | None = None,
        key_check: KeyCheck = KeyCheck.BEFORE_HANDLER,
        **description: Any,
    ) -> None:
        """Add a route.

        answer: type of its JSON; None if it has none. statuses: of its errors, except for a key
        that is refused.
        protocol: of the route, if it is not that of the others. content: describes an answer that
        is not JSON. other_answers: further forms of the answer. other_statuses: further answers, by
        status.
        extra: further fields of the operation, such as its parameters.
        description: further keyword arguments of FastAPI's `APIRoute`.
        """
        protocol = protocol or self._protocol
        security: dict[str, Any] = {}
        if key_check is not KeyCheck.NONE:
            statuses = sorted({*statuses, protocol.status_of(KeyRefused("", ""))})
            # Optional keys are described, too: a client that was generated from a server without
            # keys must be able to send them to one with keys.
            is_optional = self._authenticator is None
            security = require_one_of(protocol.security_schemes, is_optional)
        responses = protocol.responses(answer, statuses)
        success = responses.pop(200)
        authenticator = self._authenticator if key_check is KeyCheck.BEFORE_HANDLER else None
        self.routes.append(
            ProtocolRoute(
                *(protocol, method, path, handler, authenticator, key_check, body),
                tags=[self._tag],
                status_code=status,
                responses={
                    status: {**(content or success), **(other_answers or {})},
                    **responses,
                    **(other_statuses or {}),
                },
                openapi_extra={
                    **(body.operation_fields if body else {}),
                    **security,
                    **(extra or {}),
                },
                **description,
            )
        )

    def add_refusal(
        self, path: str, status: int, message: str, protocol: Protocol | None = None, **names: Any
    ) -> None:
        """Add a route that refuses all POST requests. names: `name` and `description`."""
        protocol = protocol or self._protocol

        async def refuse(request: Request) -> Response:
            raise HTTPException(status, message)

        self.routes.append(
            ProtocolRoute(
                *(protocol, "POST", path, refuse),
                tags=[self._tag],
                status_code=status,
                responses=protocol.refusal(status),
                **names,
            )
        )


def protocol_at(scope: Scope, protocols: Sequence[Protocol]) -> Protocol:
    """Return the protocol of the matched route, even if its method does not match.

    Without a route it is the protocol with the longest prefix of the path.
    """
    route = scope.get("route")
    if isinstance(route, ProtocolRoute):
        return route.protocol
    path = path_of(scope)
    owners = (protocol for protocol in protocols if protocol.owns(path))
    return max(owners, key=lambda protocol: len(protocol.prefix))


def report_routing_errors(app: FastAPI, report: ErrorReport) -> None:
    """Report paths, methods and files that there are not, as their protocol does."""

    async def respond(request: Request, error: Exception) -> Response:
        return error_response(error, *report(request.scope, error))

    app.add_exception_handler(HTTPException, respond)


def query_parameters(*names: str) -> dict[str, Any]:
    """Describe required parameters of the query, for OpenAPI."""
    schema = {"in": "query", "required": True, "schema": {"type": "string"}}
    return {"parameters": [{"name": name, **schema} for name in names]}
