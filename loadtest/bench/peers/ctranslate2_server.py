"""Serves CTranslate2 with dynamic batching: what one would write around it in an afternoon.

    PEERS/bin/python loadtest/bench/peers/ctranslate2_server.py MODEL PORT WORKERS CORES TYPE

Each worker takes all requests that wait, up to 32, translates them as one batch and takes the next;
nothing waits for a batch to fill. MODEL holds CTranslate2's model, source.spm and target.spm.
It needs ctranslate2, sentencepiece and aiohttp, and imports nothing of ours.
"""

import asyncio
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

LARGEST_BATCH = 32
NOT_INSTALLED = 3  # exit code


@dataclass(frozen=True)
class Waiting:
    """A request that waits for its translation."""

    text: str
    max_new_tokens: int
    answer: "asyncio.Future[str]"


class BatchingTranslator:
    """Translates batches, several side by side."""

    def __init__(self, model: str, num_workers: int, num_cores: int, kind: str) -> None:
        spm = importlib.import_module("sentencepiece").SentencePieceProcessor
        self._source, self._target = spm(f"{model}/source.spm"), spm(f"{model}/target.spm")
        self._translator = importlib.import_module("ctranslate2").Translator(
            model,
            compute_type=kind,
            inter_threads=num_workers,
            intra_threads=max(num_cores // num_workers, 1),
        )

    def translate(self, texts: list[str], max_new_tokens: int) -> list[str]:
        tokens = [[*self._source.encode(text, out_type=str), "</s>"] for text in texts]
        results = self._translator.translate_batch(
            tokens, beam_size=1, max_decoding_length=max_new_tokens
        )
        return [self._target.decode(result.hypotheses[0]) for result in results]


async def work(queue: "asyncio.Queue[Waiting]", translator: BatchingTranslator, pool: Any) -> None:
    """Translate what waits, batch after batch."""
    loop = asyncio.get_running_loop()
    while True:
        batch = [await queue.get()]
        while len(batch) < LARGEST_BATCH and not queue.empty():
            batch.append(queue.get_nowait())
        texts = [request.text for request in batch]
        longest = max(request.max_new_tokens for request in batch)
        try:
            done = await loop.run_in_executor(pool, translator.translate, texts, longest)
        except Exception as error:  # it belongs to those who asked
            for request in batch:
                request.answer.set_exception(error)
            continue
        for request, text in zip(batch, done, strict=True):
            if not request.answer.done():
                request.answer.set_result(text)


def application(web: Any, translator: BatchingTranslator, num_workers: int) -> Any:
    """Make the HTTP application."""
    queue: asyncio.Queue[Waiting] = asyncio.Queue()
    pool = ThreadPoolExecutor(num_workers)

    async def translate(request: Any) -> Any:
        body = await request.json()
        answer = asyncio.get_running_loop().create_future()
        await queue.put(Waiting(body["q"], body["max_new_tokens"], answer))
        return web.json_response({"translatedText": await answer})

    async def health(request: Any) -> Any:
        return web.json_response({"status": "ok"})

    async def run_workers(_: Any) -> Any:
        tasks = [asyncio.create_task(work(queue, translator, pool)) for _ in range(num_workers)]
        yield
        for task in tasks:
            task.cancel()

    app = web.Application()
    app.add_routes([web.post("/translate", translate), web.get("/health", health)])
    app.cleanup_ctx.append(run_workers)
    return app


def main(model: str, port: str, workers: str, cores: str, kind: str) -> None:
    try:
        web = importlib.import_module("aiohttp.web")
        translator = BatchingTranslator(model, int(workers), int(cores), kind)
    except ImportError as error:
        print(error, file=sys.stderr)
        raise SystemExit(NOT_INSTALLED) from error
    app = application(web, translator, int(workers))
    web.run_app(app, host="127.0.0.1", port=int(port), print=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
