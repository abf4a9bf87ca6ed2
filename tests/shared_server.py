"""One real server for a whole run of pytest, whichever of its processes asks for it.

pytest's first process starts the server and stops it, so that it outlives a worker that crashes,
and nothing outlives the run.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from multiprocessing.connection import Client, Listener
from pathlib import Path
from tempfile import TemporaryDirectory

FRENCH_GERMAN = {"source_languages": ("fr",), "target_languages": ("de",)}


class SharedServer:
    """A server that starts when ``request_url`` is first called with this ``address``.

    ``serve`` returns a context manager that starts a server, gives its URL, and stops it.
    """

    def __init__(self, serve: Callable[[], AbstractContextManager[str]]) -> None:
        self._serve = serve
        self._listener = Listener(family="AF_UNIX")
        self.address = str(self._listener.address)
        self._stopped = ThreadPoolExecutor(1).submit(self._answer)

    def stop(self) -> None:
        """Stop the server, if it was started. Raise what went wrong with it."""
        with suppress(OSError), Client(self.address) as connection:  # OSError: it did not start
            connection.send("stop")
        self._stopped.result()

    def _answer(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(self._listener)
            url = ""
            while True:
                with self._listener.accept() as connection:
                    if connection.recv() == "stop":
                        return
                    try:
                        url = url or stack.enter_context(self._serve())
                    except Exception as error:
                        connection.send(error)
                        raise
                    connection.send(url)


def request_url(address: str) -> str:
    """Return the URL of the server, which is started where no process has asked for it before."""
    with Client(address) as connection:
        connection.send("start")
        answer: str | Exception = connection.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer


@contextmanager
def served_models() -> Iterator[str]:
    """The three shipped models in the group that answers, tiny random ones in another."""
    # pytest's first process imports these only where a test needs the server.
    from serving.bundle.manifest import Precision
    from tests.encoders import encoder_bundle
    from tests.served import int8_bundle, served
    from tests.serving.imported import captioning_bundle, chatting_bundle, many_languages_bundle
    from tests.tiny import SOUND_READER, tiny_bundle

    with TemporaryDirectory(prefix="attendant-server-") as name:
        folder = Path(name)
        shipped = [("transformer-en-fr", "transformer"), ("bahdanau-en-fr", "bahdanau")]
        near = [int8_bundle(*names, folder) for names in shipped]
        near.append(int8_bundle("llama-en", "llama", folder, context_length=4096))
        far = [
            int8_bundle("far-llama", "llama", folder, context_length=4096),
            int8_bundle("far-transformer", "transformer", folder, seed=7),
            chatting_bundle(folder / "chatting"),
            many_languages_bundle(folder / "many"),
            int8_bundle("far-german", "transformer", folder, seed=1, **FRENCH_GERMAN),
            encoder_bundle("embedder", folder),
            captioning_bundle(folder / "pictures"),
            tiny_bundle(SOUND_READER, folder / "speech", Precision.INT8),
        ]
        patient = {"max_wait_seconds": 600.0}  # however busy the machine is, nothing is refused
        roomy = {**patient, "max_waiting": 10_000, "limits": {"max_segments": 10_000}}
        groups = [
            {"name": "shipped", "bundles": near, "cpus_per_replica": 1, **patient},
            {"name": "far", "bundles": far, "cpus_per_replica": 1, **roomy},
        ]
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        with served({"groups": groups}, folder, environment=environment) as url:
            yield url
