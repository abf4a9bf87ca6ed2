"""Fixtures of all tests, among them a real server, which starts when a test first needs it."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: its models are tiny here

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi._compat.v2 import ModelField
from hypothesis import settings
from onnx_ir.schemas import OpSignature

from tests.encoders import encoder_bundle
from tests.served import int8_bundle, served
from tests.serving.imported import captioning_bundle, chatting_bundle, many_languages_bundle

# How long an example takes depends on what else the machine does.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


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
def signatures_of_operators_are_cached() -> Iterator[None]:
    """onnxscript derives an operator's signature for every node: a quarter of an export's time."""
    derive = OpSignature.from_op_schema
    known: dict[tuple[str, str, int], OpSignature] = {}

    def cached(schema: Any) -> OpSignature:
        key = (schema.domain, schema.name, schema.since_version)
        if key not in known:
            known[key] = derive(schema)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpSignature, "from_op_schema", cached)
        yield


@pytest.fixture(autouse=True, scope="session")
def fields_of_routes_are_cached() -> Iterator[None]:
    """FastAPI derives a schema for every field of every route: most of an application's making."""
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


FRENCH_GERMAN = {"source_languages": ("fr",), "target_languages": ("de",)}


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The three shipped models in the group that answers, tiny random ones in another."""
    folder = tmp_path_factory.mktemp("server")
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
    ]
    patient = {"max_wait_seconds": 600.0}  # however busy the machine is, nothing is refused
    roomy = {**patient, "max_waiting": 10_000, "limits": {"max_segments": 10_000}}
    groups = [
        {"name": "shipped", "bundles": near, "cpus_per_replica": 1, **patient},
        {"name": "far", "bundles": far, "cpus_per_replica": 1, **roomy},
    ]
    with served({"groups": groups}, folder) as url:
        yield url
