"""`GET /usage` of all protocols: how many characters a key has used this month."""

from datetime import datetime

from fastapi import Request
from fastapi.responses import JSONResponse
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.access.quota import KeyUsage
from serving.api.http.openapi import COMMON_STATUSES
from serving.api.http.routing import Routes
from serving.api.http.services import Services
from serving.observability.request_stats import current_key


class UsageBody(TypedDict):
    """The answer. character_limit: null without a limit.

    start_time, end_time: of the month that is counted.
    """

    character_count: int
    character_limit: int | None
    start_time: str
    end_time: str


def add_usage(routes: Routes, services: Services, name: str) -> None:
    """Add `GET /usage`. name: of the operation."""

    async def usage(request: Request) -> JSONResponse:
        """Return how many characters the key has used this month."""
        return JSONResponse(usage_body(await services.quota.usage(current_key())))

    routes.add("GET", "/usage", usage, UsageBody, COMMON_STATUSES, name=name)


def usage_body(usage: KeyUsage) -> UsageBody:
    return {
        "character_count": usage.characters,
        "character_limit": usage.limit,
        "start_time": _iso_8601(usage.start),
        "end_time": _iso_8601(usage.end),
    }


def _iso_8601(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
