"""Gives errors the shape that OpenAI's clients expect."""

from dataclasses import replace
from typing import Any

from serving.api.http.error_responses import message_of
from serving.api.http.protocol import Protocol
from serving.api.openai.answers import OpenAIError
from serving.errors import KeyRefused, ModelNotFound, QuotaExceeded, RequestError

_TYPES = {
    404: "not_found_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
_CODES_OF = (
    (ModelNotFound, "model_not_found"),
    (KeyRefused, "invalid_api_key"),
    (QuotaExceeded, "insufficient_quota"),
)
_CODES = {429: "rate_limit_exceeded", 503: "service_unavailable"}


def _error_shape(status: int, error: BaseException) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = next((code for cls, code in _CODES_OF if isinstance(error, cls)), _CODES.get(status))
    param = error.field if isinstance(error, RequestError) else None
    return {
        "error": {"message": message_of(error), "type": kind, "param": param, "code": code},
    }


PROTOCOL = Protocol("openai", "/v1", _error_shape, OpenAIError)
AT_THE_ROOT = replace(PROTOCOL, prefix="")
