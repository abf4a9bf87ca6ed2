"""A local server that speaks both protocols with known delays, and misbehaves on request."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

FIRST_TOKEN_SECONDS = 0.02
TOKEN_SECONDS = 0.01
SLOW_SECONDS = 2.0
TOKENS_PER_TRANSLATION = 7


class FakeServer:
    """Translates by shouting; a text or prompt that names a fault gets that fault."""

    def __init__(self) -> None:
        self.generated = 1000  # a server that has been up for a while
        self.in_flight = 0
        self.most_in_flight = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/translate", self.translate)
        app.router.add_post("/v1/completions", self.complete)
        app.router.add_get("/metrics", self.metrics)
        return app

    async def translate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.in_flight += 1
        self.most_in_flight = max(self.in_flight, self.most_in_flight)
        await asyncio.sleep(SLOW_SECONDS if body["q"] == "slow" else TOKEN_SECONDS)
        self.in_flight -= 1
        if body["q"] == "busy":
            return web.json_response({"error": "too many requests"}, status=429)
        if body["q"] == "html":
            return web.Response(text="<html>")
        if body["q"] == "empty":
            return web.json_response({})
        self.generated += TOKENS_PER_TRANSLATION
        return web.json_response({"translatedText": body["q"].upper()})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["stream"]
        assert body["stream_options"] == {"include_usage": True}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": ping\n\n")
        await asyncio.sleep(FIRST_TOKEN_SECONDS)
        for _ in range(body["max_tokens"]):
            await response.write(b'data: {"choices": [{"text": "a"}]}\n\n')
            await asyncio.sleep(TOKEN_SECONDS)
        if body["prompt"] == "late error":
            await response.write(b'data: {"error": {"message": "the engine stopped"}}\n\n')
        if body["prompt"] == "cut":
            return response
        usage = b'{"choices": [], "usage": {"completion_tokens": %d}}' % body["max_tokens"]
        await response.write(b"data: " + usage + b"\n\ndata: [DONE]\n\n")
        return response

    async def metrics(self, request: web.Request) -> web.Response:
        lines = [
            "# TYPE attendant_tokens_total counter",
            f'attendant_tokens_total{{model="shout",kind="generated"}} {self.generated}',
            'attendant_tokens_total{model="other",kind="generated"} 5.0',
            'attendant_tokens_total{model="shout",kind="source"} 90000.0',
        ]
        return web.Response(text="\n".join(lines) + "\n")


@contextmanager
def serving(fake: FakeServer) -> Iterator[str]:
    """Serve from a thread of its own on a free port; gives the URL."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(fake.app(), shutdown_timeout=0.1)

    async def start() -> str:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/"

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
