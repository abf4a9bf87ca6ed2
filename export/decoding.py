"""What a bundle decodes, by the engine that serves it."""

from collections.abc import Sequence

from tqdm import tqdm

from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.request import FailedEvent, GenerationRequest, TokenEvent, is_final

SLOTS = 32


def decode(bundle: Bundle, requests: Sequence[GenerationRequest]) -> list[list[int]]:
    """The token ids of each request, whose ids are "0", "1", ...; all in one running batch. Of a
    beam search, those of its best hypothesis.

    Raises the engine's error if a request fails.
    """
    engine = Engine(bundle, EngineConfig(slots=SLOTS, max_waiting=len(requests)))
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
