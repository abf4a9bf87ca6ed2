"""Fixtures of all tests, among them a real server, which starts when a test first needs it."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: its models are tiny here

import gc
import signal
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.shared_server import SharedServer, request_url, served_models

# How long an example takes depends on what else the machine does.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

pytest_plugins = ("tests.unit", "tests.postgresql")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and tests, which stay, out of garbage collection: it takes 8 of 20 seconds of
    the whole suite's collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


HANDLED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)


@pytest.fixture(autouse=True)
def signal_handlers_are_restored() -> Iterator[None]:
    """Commands that are run in this process set handlers that end it. A signal that a later test
    sends to itself would end the worker.
    """
    handlers = {number: signal.getsignal(number) for number in HANDLED_SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="session")
def fields_of_routes_are_cached() -> Iterator[None]:
    """FastAPI derives a schema for every field of every route: most of an application's making."""
    if "fastapi" not in sys.modules:
        yield
        return
    from fastapi._compat.v2 import ModelField

    derive = ModelField.__post_init__
    known: dict[tuple[Any, str], Any] = {}

    def cached(field: ModelField) -> None:
        key = (field.field_info.annotation, repr(field.field_info))
        if key not in known:
            derive(field)
            known[key] = field._type_adapter
        field._type_adapter = known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelField, "__post_init__", cached)
        yield


@pytest.fixture(autouse=True, scope="session")
def plans_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor write what was measured for this user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def server_url(pytestconfig: pytest.Config) -> str:
    """The URL of a server of the shipped models, and of tiny random ones in another group."""
    return request_url(pytestconfig.stash[server_address])


server_address = pytest.StashKey[str]()
shared_server = pytest.StashKey[SharedServer]()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.stash[server_address] = config.workerinput["server_address"]
        return
    server = SharedServer(served_models)
    config.stash[shared_server] = server
    config.stash[server_address] = server.address


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where it gets the server's URL."""
    node.workerinput["server_address"] = node.config.stash[server_address]


def pytest_unconfigure(config: pytest.Config) -> None:
    if shared_server in config.stash:
        config.stash[shared_server].stop()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files whose tests use the server first, so that one worker runs them, one by one."""
    served = {item.path for item in items if "server_url" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path not in served)
