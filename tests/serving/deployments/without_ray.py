"""`attendant` with processes in place of Ray that start sooner: a replica streams made-up tokens.

What starts, admits, drains and ends around Ray is real, so that many servers can be stopped.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from serving.server_config import ServerConfig, WorkerGroup

FAILURE = {"error": {"message": "the request was aborted", "type": "service_unavailable_error"}}
TOKEN_SECONDS = 0.005
MOST_LOADING_SECONDS = 1.0
_essential: dict[str, int] = {}
_replicas: list["subprocess.Popen[str]"] = []
_unnamed = iter(_replicas)


@contextmanager
def local_ray(config: ServerConfig) -> Iterator[None]:
    for name in ("gcs_server", "raylet"):
        _essential[name] = process_named(name)
    first = int(os.environ["RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT"])
    for number in range(len(config.groups)):
        command = [sys.executable, "-m", __spec__.name, "--replica", str(first + number)]
        _replicas.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        )
    yield


def essential_processes() -> dict[str, int]:
    return _essential


def start_serve() -> None:
    process_named("ray::ServeController")


def deploy(group: WorkerGroup, application: str, prefix: str) -> None:
    process_named("ray::ServeReplica")
    time.sleep(random.uniform(0, MOST_LOADING_SECONDS))
    stdin = next(_unnamed).stdin
    assert stdin is not None
    print(application, file=stdin, flush=True)


def end_requests(applications: Sequence[str], timeout_seconds: float) -> None:
    for each in _replicas:
        each.send_signal(signal.SIGUSR1)


def process_named(name: str) -> int:
    command = [name, "1000"]
    return subprocess.Popen(command, executable="/bin/sleep", start_new_session=True).pid


def replica(application: str) -> Starlette:
    ending = asyncio.Event()

    async def tokens(request: Request) -> AsyncIterator[str]:
        body = await request.json()
        for _ in range(body["max_tokens"]):
            if ending.is_set():
                raise InterruptedError
            await asyncio.sleep(TOKEN_SECONDS)
            yield "data: {}\n\n"

    async def events(request: Request) -> AsyncIterator[str]:
        try:
            async for token in tokens(request):
                yield token
        except InterruptedError:
            yield f"data: {json.dumps(FAILURE)}\n\n"
        else:
            yield "data: [DONE]\n\n"

    async def complete(request: Request) -> Response:
        if (await request.json()).get("stream"):
            return StreamingResponse(events(request), media_type="text/event-stream")
        try:
            return JSONResponse({"tokens": [token async for token in tokens(request)]})
        except InterruptedError:
            return JSONResponse(FAILURE, 503)

    async def route_names(request: Request) -> Response:
        return JSONResponse({"/": application})

    async def ready(request: Request) -> Response:
        return JSONResponse({"status": "ready"})

    @asynccontextmanager
    async def ended_by_signal(app: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, ending.set)
        yield

    return Starlette(
        routes=[
            Route("/-/routes", route_names),
            Route("/ready", ready),
            Route("/groups/{name}/ready", ready),
            Route("/v1/completions", complete, methods=["POST"]),
        ],
        lifespan=ended_by_signal,
    )


def main() -> None:
    import serving.deployments.local_ray as real

    for part in (local_ray, essential_processes, start_serve, deploy, end_requests):
        setattr(real, part.__name__, part)
    from serving.cli import main as attendant

    attendant()


if __name__ == "__main__":
    arguments: list[Any] = sys.argv[1:]
    if arguments[0] == "--replica":
        if application := sys.stdin.readline().strip():
            uvicorn.run(replica(application), port=int(arguments[1]), log_level="critical")
    else:
        main()
