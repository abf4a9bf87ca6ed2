"""The speed of plain decoding in torch, with which `attendant bench` is compared."""

import time
from dataclasses import dataclass
from itertools import cycle, islice

from models.checkpoint import Checkpoint
from models.contract import LanguageModel
from models.data.tokenizer import encode_all, read_tokenizer
from models.decoding import continue_batch, translate_all, translate_batch
from models.loading import load_module

PROMPT_TOKENS = 8
NEW_TOKENS = 64


@dataclass(frozen=True)
class LoopSpeed:
    """The speed of one pass over all sentences. Tokens include the one that ends a sentence."""

    batch: int
    sentences: int
    seconds: float
    tokens_per_second: float
    sentences_per_second: float


def measure(
    checkpoint: Checkpoint, lines: list[str], batch: int, sentences: int, *, by_length: bool
) -> LoopSpeed:
    """Decode `sentences` of `lines` (repeated as needed) greedily in fp32, after a warm-up. They
    are batched in their order or `by_length`, which suits static batches best.
    """
    module = load_module(checkpoint)
    ids = encode_all(read_tokenizer(checkpoint.tokenizer), lines)
    work = list(islice(cycle(ids), sentences))

    def chunks(rows: list[list[int]]) -> list[list[list[int]]]:
        return [rows[i : i + batch] for i in range(0, len(rows), batch)]

    def decode(rows: list[list[int]]) -> list[list[int]]:
        if isinstance(module, LanguageModel):
            prompts = chunks([(row * PROMPT_TOKENS)[:PROMPT_TOKENS] for row in rows])
            return [t for chunk in prompts for t in continue_batch(module, chunk, NEW_TOKENS)]
        limit = module.config.max_target_tokens - 1
        if by_length:
            return translate_all(module, rows, limit, batch)
        return [t for chunk in chunks(rows) for t in translate_batch(module, chunk, limit)]

    decode(work[: 2 * batch])
    started = time.perf_counter()
    rows = decode(work)
    seconds = time.perf_counter() - started
    tokens = sum(len(row) + 1 for row in rows)
    return LoopSpeed(
        batch, sentences, round(seconds, 3), round(tokens / seconds, 1), sentences / seconds
    )
