"""Breaks requests on purpose: a server should refuse them in its protocol's own words."""

import json
from typing import Any

FAULTS = ("cut JSON", "no text", "text of a wrong type")
_TEXT_FIELDS = ("q", "prompt", "messages", "text")  # of all protocols


def broken(body: dict[str, Any], fault: str) -> bytes:
    """Return a body with one fault in it."""
    whole = json.dumps(body).encode()
    if fault == "cut JSON":
        return whole[: len(whole) // 2]
    name = next(name for name in _TEXT_FIELDS if name in body)
    changed = {key: value for key, value in body.items() if key != name}
    if fault == "text of a wrong type":
        changed[name] = 17
    return json.dumps(changed).encode()
