"""Translation memories in requests of all protocols, and in their answers."""

from collections.abc import Iterable
from typing import Any, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.services import Services
from serving.errors import RequestError
from serving.observability.request_stats import current_key
from serving.pipelines.translation.job import MemoryUse, SegmentOrigin
from serving.text.languages import match_codes

DEFAULT_THRESHOLD = 75  # percent: finds 308 of 314 sentences of which one word was changed


class TranslatedSegment(TypedDict):
    """A segment of a text. origin: "memory" or "model". score: of a unit of the memory, in
    percent.
    """

    source: str
    target: str
    origin: str
    score: NotRequired[int]


async def find_memory(
    services: Services,
    identity: str | None,
    threshold: int,
    source: str | None,
    target: str,
) -> MemoryUse | None:
    """Return how a request uses a translation memory; None if it names none.

    source: None if it is not known before the texts are read.
    Raises TranslationMemoryNotFound, and RequestError for a memory of other languages.
    """
    if not identity:
        return None
    owner = current_key()
    memory = await services.memories.get(owner, identity)
    is_from_source = source is None or match_codes(source, (memory.source,))
    if not (is_from_source and match_codes(target, memory.targets)):
        languages = f"from {memory.source} to {', '.join(memory.targets)}"
        raise RequestError("translation_memory_id", identity, f"is {languages}")
    return MemoryUse(owner, identity, target, threshold)


def describe_segments(origins: Iterable[SegmentOrigin]) -> list[dict[str, Any]]:
    """Return the JSON of where each segment came from."""
    return [
        {"source": origin.source, "target": origin.target, "origin": "model"}
        if origin.memory_score is None
        else {
            "source": origin.source,
            "target": origin.target,
            "origin": "memory",
            "score": origin.memory_score,
        }
        for origin in origins
    ]
