"""Find what would keep a configuration from being served, before Ray starts.

What takes long to import is imported where it is needed: a mistake is told within a second.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, product
from typing import TYPE_CHECKING

from serving.bundle.manifest import DEVICE_PRECISIONS, Precision, Task
from serving.bundle.opening import Bundle, open_bundle, open_manifest
from serving.bundle.preference import in_order
from serving.deployments.listening import listening_at, operations_at
from serving.deployments.progress import StartProgress
from serving.errors import (
    AttendantError,
    BundleError,
    ConfigError,
    DeviceError,
    PartEnded,
    StorageError,
)
from serving.server_config import CONSOLE, Access, ServerConfig, Tls, WorkerGroup
from serving.storage.opening import default_state_folder, open_state
from serving.storage.state import State

if TYPE_CHECKING:
    from serving.engine.config import Device

STOP_SECONDS = "ATTENDANT_STOP_SECONDS"
DATABASE_SECONDS = 60.0  # so long a start waits for a database that does not answer yet
_POLL_SECONDS = 1.0
ENDING_SECONDS = 30  # after the drain: to end requests, Ray and what is left of it


def address_problems(config: ServerConfig) -> Iterator[str]:
    """Yield why the server cannot listen at its addresses."""
    try:
        public = listening_at(config.host, config.port)
        operations_at(config.host, config.operations_port, public)
    except AttendantError as error:
        yield str(error)


def problems_of(config: ServerConfig) -> list[str]:
    """Return a line for each problem; those within the models' files if there are no others."""
    return problems_at_start(config) or [*_problems_in_files(config)]


def problems_at_start(config: ServerConfig) -> list[str]:
    """Return a line for each problem, but for those that replicas find sooner: they read the
    models' files anyway, and their checksums are checked here.
    """
    problems = [*_access_problems(config.access), *_tls_problems(config.tls)]
    problems += _tracing_problems()
    problems += _stop_problems(config.drain_seconds, os.environ.get(STOP_SECONDS, ""))
    names: Counter[str] = Counter()
    for group in config.groups:
        bundles: list[Bundle] = []
        for path in group.bundles:
            try:
                bundles.append(open_bundle(path))
            except BundleError as error:
                problems += _lines_of(error)
        if group.canary_percent is None:  # a canary has the same model names
            names.update(bundle.manifest.name for bundle in bundles)
        problems += [*_default_problems(group, bundles), *_device_problems(group, bundles)]
        problems += _library_problems(bundles)
    problems += [
        f"model {name}: served {count} times" for name, count in names.items() if count > 1
    ]
    return problems


def _lines_of(error: BundleError | ConfigError) -> list[str]:
    return [f"{error.path}: {problem}" for problem in error.problems]


def _tracing_problems() -> list[str]:
    if not any(name.startswith("OTEL_") for name in os.environ):
        return []
    from serving.observability.tracing import problems_of_tracing

    return problems_of_tracing(os.environ)


def _problems_in_files(config: ServerConfig) -> Iterator[str]:
    from serving.pipelines.loading import ModelParts

    for path in chain.from_iterable(group.bundles for group in config.groups):
        try:
            ModelParts.open(path)
        except BundleError as error:
            yield from _lines_of(error)


def _access_problems(access: Access) -> Iterator[str]:
    from serving.access.key_file import read_keys
    from serving.access.key_ring import open_key_ring

    try:
        open_key_ring(access.keys, os.environ)
    except ConfigError as error:
        yield from _lines_of(error)
    if access.operators is not None:
        try:
            read_keys(access.operators)
        except ConfigError as error:
            yield from _lines_of(error)
    if access.log not in (None, CONSOLE) and not access.log.parent.is_dir():
        yield f"{access.log}: there is no such folder"


def _tls_problems(tls: Tls | None) -> Iterator[str]:
    if tls is None:
        return
    from serving.deployments.haproxy_config import read_certificate

    try:
        read_certificate(tls)
    except ConfigError as error:
        yield from _lines_of(error)


def state_problems(place: str | None, progress: StartProgress) -> Iterator[str]:
    """Yield why the state cannot be used, after its tables were brought to this version. Wait for a
    database that is being started, as where everything starts at once.

    place: None is the default folder, which is only made when it is needed.
    Raises PartEnded if the database does not answer for a minute.
    """
    from serving.deployments.stores import SCHEMAS

    if place is None and not default_state_folder().exists():
        return
    try:
        with closing(open_state(place or default_state_folder())) as state:
            if not state.is_reachable():
                with progress.step(f"Waiting for {state.place}"):
                    _wait_until_reachable(state)
            state.check(SCHEMAS)
    except StorageError as error:
        yield str(error)


def _wait_until_reachable(state: State) -> None:
    deadline = time.monotonic() + DATABASE_SECONDS
    while not state.is_reachable():
        if time.monotonic() > deadline:
            try:
                state.check()
            except StorageError as error:
                raise PartEnded(str(error)) from None
            return
        time.sleep(_POLL_SECONDS)


def _stop_problems(drain_seconds: float, stop_seconds: str) -> Iterator[str]:
    """Compare with how long whoever stops the server waits before they kill it."""
    needed = math.ceil(drain_seconds + ENDING_SECONDS)
    if stop_seconds and not stop_seconds.isdecimal():
        yield f"{STOP_SECONDS}: {stop_seconds} is no number of seconds"
    elif stop_seconds and int(stop_seconds) < needed:
        yield (
            f"drain_seconds: {drain_seconds:g} needs {needed} s to stop, but who stops this server "
            f"waits for {stop_seconds} s ({STOP_SECONDS})"
        )


def _default_problems(group: WorkerGroup, bundles: list[Bundle]) -> Iterator[str]:
    names = [bundle.manifest.name for bundle in bundles]
    if group.default not in (None, *names) and len(names) == len(group.bundles):
        yield f"default: {group.default} is none of the group's models: {', '.join(names)}"


def _device_problems(group: WorkerGroup, bundles: list[Bundle]) -> Iterator[str]:
    device = device_of(group, [bundle.manifest.precision for bundle in bundles])
    for bundle in bundles:
        try:
            _check_device(device, bundle.manifest.precision)
        except DeviceError as error:
            yield f"{bundle.folder}: {error}"


def _library_problems(bundles: list[Bundle]) -> Iterator[str]:
    """Yield which models cannot be used, because what reads recordings is not installed."""
    transcribers = [bundle for bundle in bundles if bundle.manifest.task is Task.TRANSCRIBE]
    if not transcribers:
        return  # mistakes are told before numpy is imported
    from serving.audio.decoding import require_libraries

    try:
        require_libraries()
    except ModuleNotFoundError as error:
        for bundle in transcribers:
            yield f"{bundle.folder}: {error}"


def device_of(group: WorkerGroup, precisions: Iterable[Precision]) -> "Device":
    """Return the group's device; where it is open, a GPU that can run all of its bundles, else the
    CPU.
    """
    if group.device != "auto":
        return group.device
    try:
        for precision in precisions:
            if precision not in DEVICE_PRECISIONS:
                return "cpu"
            _check_device("cuda", precision)
    except DeviceError:
        return "cpu"
    return "cuda"


def _check_device(device: "Device", precision: Precision) -> None:
    """Raise DeviceError if the device cannot run this precision."""
    if device == "cpu" and precision not in DEVICE_PRECISIONS:
        return
    from serving.engine.runtime.session import check_device

    check_device(device, precision)


def resolve_groups(config: ServerConfig) -> ServerConfig:
    """Return the configuration with what it leaves open: without `device: auto`, and with the
    bundles in the order in which their models are tried. Its bundles have been checked.
    """
    return config.model_copy(update={"groups": tuple(map(_resolve_group, config.groups))})


def _resolve_group(group: WorkerGroup) -> WorkerGroup:
    manifests = [open_manifest(folder) for folder in group.bundles]
    device = device_of(group, [manifest.precision for manifest in manifests])
    order = in_order(manifests, group.default)
    bundles = tuple(group.bundles[place] for place in order)
    return group.model_copy(update={"device": device, "bundles": bundles})


def choices(config: ServerConfig) -> Iterator[str]:
    """Say which model answers requests that name none, where several could. The groups of the
    configuration are resolved.
    """
    names_by_pair: dict[tuple[str, str], list[str]] = {}
    for group in config.groups:
        is_asked = group.canary_percent is None  # a canary has the same model names
        for manifest in map(open_manifest, group.bundles if is_asked else ()):
            if manifest.serves is Task.TRANSLATE:
                for pair in product(manifest.source_languages, manifest.target_languages):
                    names_by_pair.setdefault(pair, []).append(manifest.name)
    pairs: dict[tuple[str, ...], list[str]] = {}
    for (source, target), names in names_by_pair.items():
        pairs.setdefault(tuple(names), []).append(f"{source} to {target}")
    for (first, *others), ways in pairs.items():
        if others:
            more = f" and {len(ways) - 1} other ways" if len(ways) > 1 else ""
            yield f"{ways[0]}{more}: {first}, unless a request names {' or '.join(others)}"
