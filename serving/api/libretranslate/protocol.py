"""Says what belongs to LibreTranslate's protocol: its errors, and where it has its keys.

Only the shape of the protocol is LibreTranslate's.
"""

from serving.api.http.plain_errors import PlainError, plain_error
from serving.api.http.protocol import Protocol
from serving.errors import KeyRefused

PROTOCOL = Protocol(
    "libretranslate",
    "",
    plain_error,
    PlainError,
    key_field="api_key",
    statuses={KeyRefused: 403},
)
