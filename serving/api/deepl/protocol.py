"""Says what is DeepL's own way: its paths, its errors, and where its clients show their keys."""

from dataclasses import replace
from typing import Any, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.error_responses import message_of
from serving.api.http.protocol import Protocol
from serving.errors import KeyRefused, QuotaExceeded, RequestError

# From what the engine and the pipelines call fields to what clients of this protocol do.
FIELD_NAMES = {
    "glossary": "glossary_id",
    "markup": "tag_handling",
    "source": "source_lang",
    "source_ids": "text",
    "target": "target_lang",
}
# What DeepL says of these fields; the rest is in the detail.
_MESSAGES = {
    "entries": "Invalid glossary entries provided",
    "source_lang": "Value for 'source_lang' not supported.",
    "target_lang": "Value for 'target_lang' not supported.",
}
OF_ANY_KEY = (403, 500, 503)
OF_A_BODY = (400, 403, 404, 413, 415, 429, 456, 500, 503, 504)


class DeepLError(TypedDict):
    message: str
    detail: NotRequired[str]


def _error_shape(status: int, error: BaseException) -> dict[str, Any]:
    if isinstance(error, RequestError) and error.field in _MESSAGES and status == 400:
        return {"message": _MESSAGES[error.field], "detail": message_of(error)}
    return {"message": message_of(error)}


PROTOCOL = Protocol(
    "deepl",
    "/v2",
    _error_shape,
    DeepLError,
    FIELD_NAMES,
    key_scheme="DeepL-Auth-Key",
    statuses={KeyRefused: 403, QuotaExceeded: 456},
)
V3_PROTOCOL = replace(PROTOCOL, prefix="/v3")
