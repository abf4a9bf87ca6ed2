"""The characters that a key has used in the current month."""

from datetime import datetime

from fastapi.responses import JSONResponse
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.access.account import current_account
from serving.access.quota import Usage
from serving.api.http.endpoint import Routes
from serving.api.http.openapi import OF_A_LIST
from serving.api.http.services import Services


class UsageBody(TypedDict):
    """The answer. character_limit: null where there is none.

    start_time, end_time: of the month that is counted.
    """

    character_count: int
    character_limit: int | None
    start_time: str
    end_time: str


def add_usage(routes: Routes, services: Services, name: str) -> None:
    """Add `GET /usage`. name: of the operation."""

    async def usage() -> JSONResponse:
        """Return how much of its month the key has used."""
        return JSONResponse(usage_body(await services.quota.usage(current_account().key)))

    routes.add("GET", "/usage", usage, UsageBody, OF_A_LIST, name=name)


def usage_body(usage: Usage) -> UsageBody:
    return {
        "character_count": usage.characters,
        "character_limit": usage.limit,
        "start_time": _as_text(usage.start),
        "end_time": _as_text(usage.end),
    }


def _as_text(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
