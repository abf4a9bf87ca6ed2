"""Asks a server over HTTP, as plainly as a client without any library would."""

import json
import urllib.error
import urllib.request
from typing import Any

_TIMEOUT_SECONDS = 60.0


class Refused(Exception):
    """Says that the server answered with an error, or not at all."""


def ask(url: str, body: Any = None, method: str | None = None, token: str | None = None) -> str:
    """Return the answer's text; a body is sent as JSON. Raises Refused."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        raise Refused(f"{error.code}: {text[:500]}") from None
    except (OSError, ValueError) as error:  # an URL that is none is a ValueError
        raise Refused(str(getattr(error, "reason", error))) from None
