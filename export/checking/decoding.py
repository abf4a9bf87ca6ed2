"""Decodes with a bundle's graphs by the bare engine, to compare them with torch, ids with ids.

Both sides choose from the whole vocabulary: what the service adds that knows the text (shortlists,
ids that are never chosen) is left out on purpose, so `serving.pipelines.loading` is not used.
"""

from collections.abc import Sequence

from tqdm import tqdm

from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.request import FailedEvent, GenerationRequest, TokenEvent, is_final

SLOTS = 32


def decode(bundle: Bundle, requests: Sequence[GenerationRequest]) -> list[list[int]]:
    """Return the token ids of each request; all run in one batch. A beam search gives those of its
    best hypothesis. Raises the engine's error if a request fails.

    requests: with the ids "0", "1", ...
    """
    engine = Engine(bundle, EngineConfig(slots=SLOTS, max_waiting=None))
    engine.submit(*requests)
    rows: list[list[int]] = [[] for _ in requests]
    with tqdm(total=len(requests), desc="decoding", unit="text", leave=False, disable=None) as bar:
        while engine.has_work:
            for event in engine.step():
                if isinstance(event, TokenEvent):
                    rows[int(event.request_id)].append(event.token_id)
                if isinstance(event, FailedEvent):
                    raise event.error
                bar.update(is_final(event))
    return rows
