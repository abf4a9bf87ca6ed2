"""Dates and times in JSON schemas.

llguidance's own grammar of them allows a 29th of February in any year, the year 0000, and leap
seconds, which few programs read.
"""

import json
from typing import Any

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_FOURTHS = "(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = f"(?:[0-9]{{2}}{_FOURTHS}|{_FOURTHS}00)"
_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = f"(?:{_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
_HOUR = "(?:[01][0-9]|2[0-3])"
_TIME = rf"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-]{_HOUR}:[0-5][0-9])"
# Patterns of the formats, which apply beside them (RFC 3339, 5.6).
_PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[Tt]{_TIME}$",
}
# Keywords whose values are schemas by names, and those whose values are no schemas.
_SCHEMAS_BY_NAME = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
_VALUES = frozenset({"const", "default", "enum", "examples"})


def with_valid_dates(schema: str) -> str:
    """Return a JSON schema, as text, whose dates and times are those that exist."""
    if '"format"' not in schema:
        return schema
    content: Any = json.loads(schema)
    schemas = [content]
    while schemas:
        node = schemas.pop()
        if isinstance(node, list):
            schemas += node
        elif isinstance(node, dict):
            for name, value in node.items():
                if name in _SCHEMAS_BY_NAME and isinstance(value, dict):
                    schemas += value.values()
                elif name not in _VALUES:
                    schemas.append(value)
            _restrict(node)
    return json.dumps(content)


def _restrict(schema: dict[str, Any]) -> None:
    """Add the pattern of a schema's format, unless its values are listed."""
    kind, others = schema.get("format"), schema.get("allOf", [])
    pattern = _PATTERNS.get(kind) if isinstance(kind, str) else None
    if pattern and isinstance(others, list) and not schema.keys() & {"const", "enum"}:
        schema["allOf"] = [*others, {"pattern": pattern}]
