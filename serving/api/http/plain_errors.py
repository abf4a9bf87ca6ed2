"""Gives errors the shape that several protocols share: `{"error": "a message"}`."""

from typing import Any

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.error_responses import message_of


class PlainError(TypedDict):
    error: str


def plain_error(status: int, error: BaseException) -> dict[str, Any]:
    return {"error": message_of(error)}
