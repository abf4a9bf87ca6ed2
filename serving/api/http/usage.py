"""Tells a key what it has used of its month, where a protocol has no way of its own."""

from datetime import datetime

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.access.account import current_account
from serving.access.quota import Usage
from serving.api.http.authentication import Gate
from serving.api.http.openapi import OF_A_LIST
from serving.api.http.protocol import Protocol
from serving.api.http.services import Services


class UsageBody(TypedDict):
    """Describes the answer. character_limit: null where there is none. start_time, end_time: of the
    month that is counted.
    """

    character_count: int
    character_limit: int | None
    start_time: str
    end_time: str


def add_usage(routes: APIRouter, protocol: Protocol, services: Services) -> None:
    """Add `GET /usage`."""

    async def usage() -> JSONResponse:
        """Tell how much of its month the key has used."""
        return JSONResponse(written(await services.quota.usage(current_account().key)))

    routes.add_api_route(
        "/usage",
        usage,
        methods=["GET"],
        name=f"{protocol.name}_usage",
        responses=protocol.responses(UsageBody, OF_A_LIST),
        dependencies=[Depends(Gate(services.keys).door(protocol))],
    )


def written(usage: Usage) -> UsageBody:
    return {
        "character_count": usage.characters,
        "character_limit": usage.limit,
        "start_time": _as_text(usage.start),
        "end_time": _as_text(usage.end),
    }


def _as_text(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
