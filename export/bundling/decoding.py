"""Decodes requests with a bundle's engine, for verification on texts."""

from collections.abc import Sequence

from tqdm import tqdm

from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.request import FailedEvent, FinishedEvent, GenerationRequest

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
                if isinstance(event, FailedEvent):
                    raise event.error
                if isinstance(event, FinishedEvent):
                    rows[int(event.request_id)] = event.best.tokens.ids
                    bar.update()
    return rows
