"""Holds the body of `POST /detect`."""

from typing import Any

from pydantic import ConfigDict

from serving.api.http.reading.bodies import FieldsBody


class DetectBody(FieldsBody):
    """LibreTranslate's fields; api_key and secret are as in `POST /translate`."""

    model_config = ConfigDict(extra="forbid")

    q: str
    api_key: Any = None
    secret: Any = None
