"""`/languages`, `/detect` and `/frontend/settings`."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict

from serving.api.http.bodies import FieldsBody, reads_all
from serving.api.http.endpoint import SimpleEndpoint
from serving.api.http.services import Services
from serving.api.libretranslate.protocol import PROTOCOL, DetectedLanguage
from serving.documents.formats.registry import FORMATS
from serving.language_detection import AUTO, Guess, readable
from serving.pipelines.cards import ModelCard
from serving.pipelines.pivoting import targets_by_source
from serving.text.languages import language_name
from serving.text.plain_text import check_text

_MOST_GUESSES = 5
_PAGE_WAITS_MILLISECONDS = 500  # after the last key press
_LEAST_CONFIDENCE = 1.0  # percent; less likely guesses are left out, except the first


class DetectBody(FieldsBody):
    """The body of `/detect`. api_key, secret: as in `POST /translate`."""

    model_config = ConfigDict(extra="forbid")

    q: str
    api_key: Any = None
    secret: Any = None


async def _detect(services: Services, body: DetectBody) -> list[dict[str, Any]]:
    check_text("q", body.q, services.limits.max_characters)
    among = await readable(services.catalog, None)
    guesses = await asyncio.to_thread(services.identifier.identify, body.q, among)
    first, *others = map(detected, guesses)
    others = [each for each in others if each["confidence"] >= _LEAST_CONFIDENCE]
    return [first, *others][:_MOST_GUESSES]


DETECT = SimpleEndpoint(
    protocol=PROTOCOL,
    path="/detect",
    name="detect",
    description="Identify the language of a text, among those that are translated here.",
    body=DetectBody,
    reader=reads_all(repeated="q"),
    answer=_detect,
    answer_type=list[DetectedLanguage],
    example={"q": "A dog runs."},
)


def detected(guess: Guess) -> dict[str, Any]:
    """Return the JSON of a guess, with the confidence in percent."""
    return {"confidence": round(100 * guess.confidence, 1), "language": guess.language}


def listed(cards: list[ModelCard]) -> list[dict[str, Any]]:
    """Return the languages to translate from, each with those that it is translated into."""
    targets = targets_by_source(cards)
    names = Counter(map(language_name, targets))
    return [
        {"code": code, "name": _name(code, names), "targets": sorted(targets[code])}
        for code in sorted(targets)
    ]


def settings(services: Services, cards: list[ModelCard]) -> dict[str, Any]:
    """Return the settings that LibreTranslate's page asks for."""
    targets = [target for card in cards for target in card.target_languages]
    target = targets[0] if targets else ""
    return {
        "charLimit": services.limits.max_characters,
        "frontendTimeout": _PAGE_WAITS_MILLISECONDS,
        "apiKeys": services.keys is not None,
        "keyRequired": services.keys is not None,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": [f".{extension}" for extension in FORMATS],
        "language": {
            "source": {"code": AUTO, "name": "Auto Detect"},
            "target": {"code": target, "name": language_name(target)},
        },
    }


def _name(code: str, names: Mapping[str, int]) -> str:
    """Return the name, with the code if several languages have the same name."""
    name = language_name(code)
    return name if names[name] == 1 else f"{name} ({code})"
