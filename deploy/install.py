"""Install this source tree into .venv and export models: what `make serve` does before it serves.

    python3 -m deploy.install [--extras cpu,train,dev] [BUNDLE...]

A BUNDLE is a folder, such as build/bundles/llama-en-int8: the checkpoint llama-en of
models/checkpoints in int8. Names that are not there are translators of general text, of which the
first that can be fetched is pulled: firefox-en-fr is firefox/en-fr, others are of the catalogue.
What is up to date is not made again. A run that was stopped or killed is resumed by the next one.

Steps run side by side where they can: kernels are compiled while packages are downloaded. Each has
a line with its seconds; what the tools say is in build/logs. This runs before anything is
installed, on Python's standard library alone.
"""

import argparse
import ast
import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import NoReturn

from serving.kernels import build
from serving.kernels.library import LIBRARY, key_path, problem_path

VENV = Path(".venv")
PYTHON = ".venv/bin/python"
STAMP = VENV / "installed"
LOGS = Path("build") / "logs"
CHECKPOINTS = Path("models") / "checkpoints"
EXPORTERS = ("export", "models/architectures", "models/configs", "serving/bundle")
PULL_SECONDS = 120
FIREFOX = "firefox-"
LAST_LINES = 12  # of a log, shown with an error
# Where there is no network, servers are not waited for long.
FETCH = """
import sys
from export.downloads import cache_folder, fetch_from_catalogue
fetch_from_catalogue(sys.argv[1], cache_folder())
"""
FETCH_FROM_FIREFOX = """
import sys
from export.downloads import cache_folder
from export.firefox import fetch_model
fetch_model(sys.argv[1].partition("/")[2], None, cache_folder(), timeout=5.0)
"""
PULL_ENVIRONMENT = {"PIP_DEFAULT_TIMEOUT": "5", "PIP_RETRIES": "0", "PIP_NO_INPUT": "1"}

# uv does not read pip's configuration. These of pip's options are options of uv,
UV_OPTIONS = {
    "index-url": "--index-url",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
    "constraint": "--constraint",
    "no-binary": "--no-binary",
    "only-binary": "--only-binary",
}
# and these its environment variables.
UV_VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "no-index": "UV_NO_INDEX",
}


class StepError(Exception):
    """A step cannot be done. log: what its tools said. advice: what to do about it."""

    def __init__(self, log: Path, advice: str) -> None:
        super().__init__(advice)
        self.log, self.advice = log, advice


class Stopped(Exception):
    """The program ends, and starts no more tools."""


class Tools:
    """Run other programs, with their output in logs, and end them when this program ends."""

    def __init__(self, lock: int) -> None:
        """lock: a file descriptor that every program holds, so that the lock outlives this one."""
        self._lock = lock
        self._processes: set[subprocess.Popen[str]] = set()
        self._mutex = threading.Lock()
        self._is_stopped = False

    def start(
        self,
        log: Path,
        *command: str,
        environment: Mapping[str, str] | None = None,
        takes_lines: bool = False,
    ) -> subprocess.Popen[str]:
        """Start a program. takes_lines: it reads lines and answers each with a line."""
        with log.open("a", encoding="utf-8") as file, self._mutex:
            if self._is_stopped:
                raise Stopped
            print("$", shlex.join(command), file=file, flush=True)
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if takes_lines else subprocess.DEVNULL,
                stdout=subprocess.PIPE if takes_lines else file,
                stderr=file,
                env={**os.environ, **(environment or {})},
                text=True,
                start_new_session=True,  # without a terminal, on which builds would write
                pass_fds=(self._lock,),
            )
            self._processes.add(process)
            return process

    def finish(self, process: subprocess.Popen[str], timeout: float | None = None) -> bool:
        """Wait for the program and return whether it succeeded."""
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            status = process.wait()
        with self._mutex:
            self._processes.discard(process)
            if self._is_stopped:
                raise Stopped
        return status == 0

    def run(self, log: Path, *command: str, environment: Mapping[str, str] | None = None) -> bool:
        """Run a program and return whether it is there and succeeded."""
        try:
            return self.finish(self.start(log, *command, environment=environment))
        except OSError as error:
            with log.open("a", encoding="utf-8") as file:
                print(error, file=file)
            return False

    def stop(self) -> None:
        """End all programs that run, and wait for their ends."""
        with self._mutex:
            self._is_stopped = True
            processes = [*self._processes]  # other threads take out those that have ended
            for process in processes:
                _end(process)
        for process in processes:
            process.wait()


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)


class Step:
    """Work in a thread of its own, which begins when other steps have succeeded.

    title: of its line; "" if it has none. note: what there is to say when it has ended.
    """

    def __init__(
        self,
        title: str,
        work: Callable[[], str | None],
        *after: "Step | None",
        counts: "Step | None" = None,
    ) -> None:
        """counts: a step whose seconds are reported together with this one's."""
        self.title, self.note = title, ""
        self._work, self._counts = work, counts
        self._after = [step for step in after if step is not None]
        self._error: BaseException | None = None
        self._began: float | None = None
        self._end: float | None = None
        self._has_ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for step in self._after:
                step.wait()
            self._began = time.monotonic()
            self.note = self._work() or ""
        except BaseException as error:
            self._error = error
        self._end = time.monotonic()
        self._has_ended.set()

    @property
    def seconds(self) -> float:
        """How long it has worked, without waiting for others."""
        others = 0.0 if self._counts is None else self._counts.seconds
        return (
            others
            if self._began is None
            else others + (self._end or time.monotonic()) - self._began
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether the step has ended. Raises the exception that has ended it."""
        has_ended = self._has_ended.wait(timeout)
        if self._error is not None:
            raise self._error
        return has_ended


class Installer:
    """Installs packages into .venv: uv does, the machine's or its own, or else pip."""

    def __init__(self, tools: Tools, extras: Sequence[str]) -> None:
        self._tools, self._extras = tools, extras

    def create_environment(self) -> None:
        """Make .venv with pip, and with uv where the machine has none."""
        log = new_log("environment")
        if not self._tools.run(log, PYTHON, "-m", "pip", "--version"):
            command = (sys.executable, "-m", "venv", "--clear", str(VENV))
            if not self._tools.run(log, *command):
                raise StepError(log, "Install Python's venv (on Debian: apt install python3-venv).")
        if _uv() is None:
            self._tools.run(log, PYTHON, "-m", "pip", "install", "--force-reinstall", "uv")

    def install_packages(self, compiled: Step | None) -> None:
        """Install what pyproject.toml asks for, in the versions of the image or, where the package
        index lacks one of them, in the newest that fit.
        """
        log = new_log("packages")
        # An installation that was killed may have left parts of packages.
        was_interrupted = STAMP.exists() and not STAMP.read_text(encoding="utf-8")
        anew = ["--reinstall"] if was_interrupted else []
        STAMP.write_text("", encoding="utf-8")
        arguments = ["-r", "pyproject.toml", *anew]
        arguments += [f"--extra={extra}" for extra in self._extras]
        if self._uv_install(log, *arguments, *_lock_options(self._extras)):
            return
        if self._uv_install(log, *arguments):
            return
        if compiled:  # pip's build compiles the kernels, too, unless they are there
            compiled.wait()
        project = f".[{','.join(self._extras)}]"
        again = ["--force-reinstall"] if was_interrupted else []
        command = [PYTHON, "-m", "pip", "install", *again, "--editable", project]
        if not self._tools.run(log, *command):
            raise StepError(
                log,
                "Run the same command again once the package index answers; packages that were"
                " fetched are kept. PIP_INDEX_URL names another index.",
            )

    def install_project(self) -> None:
        """Install the source tree in place."""
        log = LOGS / "kernels.log"
        project = ["--no-deps", "--editable", "."]
        command = [PYTHON, "-m", "pip", "install", *project]
        if not self._uv_install(log, *project) and not self._tools.run(log, *command):
            raise StepError(log, "Run the same command again once the package index answers.")
        words = [requirements_digest(), *self._extras]
        STAMP.write_text("\n".join(words), encoding="utf-8")

    def _uv_install(self, log: Path, *arguments: str) -> bool:
        if (uv := _uv()) is None:
            return False
        options, environment = self._uv_configuration
        command = [uv, "pip", "install", "--python", PYTHON, *options, *arguments]
        return self._tools.run(log, *command, environment=environment)

    @cached_property
    def _uv_configuration(self) -> tuple[list[str], dict[str, str]]:
        command = [PYTHON, "-m", "pip", "config", "list"]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return uv_configuration(listed)


def _uv() -> str | None:
    """Return the path of the machine's uv, or of that in .venv."""
    return shutil.which("uv") or shutil.which("uv", path=VENV / "bin")


def _lock_options(extras: Sequence[str]) -> list[str]:
    devices = ["shared", *(extra for extra in extras if extra in ("cpu", "gpu"))]
    files = [f"--constraint=deploy/docker/requirements-{device}.txt" for device in devices]
    return [*files, "--no-verify-hashes"]  # of the image's Python alone


def uv_configuration(listed: str) -> tuple[list[str], dict[str, str]]:
    """Return options and environment variables by which uv does what pip is configured to do.

    listed: what `pip config list` says.
    """
    options = ["--index-strategy=unsafe-best-match"]  # all indexes are equal, as they are to pip
    # pip trusts the certificates of the system, too.
    environment = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        with suppress(ValueError, SyntaxError):
            value = str(ast.literal_eval(value))
        if name in UV_OPTIONS:
            options += [f"{UV_OPTIONS[name]}={word}" for word in value.split()]
        elif name in UV_VARIABLES:
            environment[UV_VARIABLES[name]] = value
    return list(dict.fromkeys(options)), environment


class Models:
    """Exports models, all in one process, which imports everything once."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._process: subprocess.Popen[str] | None = None
        self._fetched: dict[Path, bool] = {}

    def start(self) -> None:
        """Start the process, whose imports take as long as the exports."""
        command = [PYTHON, "-m", "export.batch"]
        self._process = self._tools.start(new_log("models"), *command, takes_lines=True)

    def export(self, bundles: Sequence[Path]) -> None:
        """Export checkpoints."""
        for bundle in bundles:
            if not self._run("export", str(_checkpoint(bundle)), bundle):
                raise StepError(LOGS / "models.log", "Mend it and run the same command again.")

    def fetch_first(self, bundles: Sequence[Path]) -> None:
        """Fetch the first model that can be had into the user's cache."""
        any(is_up_to_date(bundle) or self._fetch(bundle) for bundle in bundles)

    def pull(self, bundles: Sequence[Path]) -> str:
        """Export the first model that can be fetched. Return which one it is, and why not the
        first.
        """
        first, *others = (_checkpoint(bundle).name for bundle in bundles)
        for bundle in bundles:
            if is_up_to_date(bundle) or (
                self._fetch(bundle) and self._run("pull", _name_to_pull(bundle), bundle)
            ):
                if bundle == bundles[0]:
                    return first
                return f"{_checkpoint(bundle).name}: {self._explain(bundles[0])}"
        left_out = f", nor {' nor '.join(others)}" if others else ""
        return f"none: {self._explain(bundles[0])}{left_out}. The same command tries again"

    def _explain(self, bundle: Path) -> str:
        name = _checkpoint(bundle).name
        if self._fetched[bundle]:
            return f"{name} could not be exported, see {LOGS / 'models.log'}"
        return f"{name} could not be fetched, see {_pull_log(bundle)}"

    def _fetch(self, bundle: Path) -> bool:
        """Fetch a model, once, and return whether it is there."""
        if bundle not in self._fetched:
            name = _name_to_pull(bundle)
            code = FETCH_FROM_FIREFOX if "/" in name else FETCH
            _pull_log(bundle).write_text("", encoding="utf-8")
            process = self._tools.start(
                _pull_log(bundle), PYTHON, "-c", code, name, environment=PULL_ENVIRONMENT
            )
            self._fetched[bundle] = self._tools.finish(process, PULL_SECONDS)
        return self._fetched[bundle]

    def _run(self, command: str, source: str, bundle: Path) -> bool:
        """Run a command of `attendant` and return whether it succeeded."""
        for interrupted in bundle.parent.glob(f".{bundle.name}.*"):
            shutil.rmtree(interrupted, ignore_errors=True)
        if self._process is None:
            self.start()
        assert self._process and self._process.stdin and self._process.stdout
        precision = bundle.name.rpartition("-")[2]
        words = [command, source, "--output", str(bundle), "--precision", precision]
        with suppress(BrokenPipeError):
            print(shlex.join(words), file=self._process.stdin, flush=True)
            if self._process.stdout.readline():
                return True
        self._tools.finish(self._process)
        self._process = None
        return False


class Kernels:
    """Compiles the native kernels."""

    def __init__(self, tools: Tools, installer: Installer) -> None:
        self._tools, self._installer = tools, installer
        self._was_tried = _is_newer(problem_path(LIBRARY), _kernel_sources())

    @property
    def are_needed(self) -> bool:
        return build.may_be_built() and not _is_newer(key_path(LIBRARY), _kernel_sources())

    @property
    def title(self) -> str:
        if not build.may_be_built():
            return "attendant"
        return f"native kernels for {' and '.join(build.instruction_sets_to_build())}"

    def compile(self) -> None:
        """Compile them with a compiler of this machine, if one works."""
        command = [sys.executable, "-m", "serving.kernels.build"]
        if self._tools.run(new_log("kernels"), *command):
            key_path(LIBRARY).touch()

    def install(self, is_installed: bool) -> str:
        """Install the source tree in place, whose build compiles them with ziglang where no
        compiler of this machine did. Return what to say where there are none.
        """
        if not is_installed or (self.are_needed and not self._was_tried):
            self._installer.install_project()
        if not self.are_needed:
            return ""
        reason = problem_path(LIBRARY).read_text(encoding="utf-8").strip()
        return f"none: {reason}. {build.COST}"


def _kernel_sources() -> list[Path]:
    return [*build.FOLDER.glob("*.h"), *build.FOLDER.glob("*.cpp"), build.FOLDER / "build.py"]


def _is_newer(path: Path, sources: Iterable[Path]) -> bool:
    """Return whether the file is there, and newer than its sources."""
    return path.exists() and path.stat().st_mtime >= max(
        source.stat().st_mtime for source in sources
    )


def _checkpoint(bundle: Path) -> Path:
    """Return the folder of the checkpoint of build/bundles/NAME-PRECISION."""
    return CHECKPOINTS / bundle.name.rpartition("-")[0]


def _name_to_pull(bundle: Path) -> str:
    """Return the name by which `attendant pull` knows the model of a bundle."""
    name = _checkpoint(bundle).name
    return f"firefox/{name.removeprefix(FIREFOX)}" if name.startswith(FIREFOX) else name


def _pull_log(bundle: Path) -> Path:
    return LOGS / f"{_checkpoint(bundle).name}.log"


def is_up_to_date(bundle: Path) -> bool:
    """Return whether the bundle is newer than its checkpoint and the code that exports it."""
    sources = [path for folder in EXPORTERS for path in Path(folder).rglob("*.py")]
    sources += [*Path("models").glob("*.py"), *_checkpoint(bundle).glob("*")]
    return _is_newer(bundle / "bundle.json", sources)


def installed_extras() -> set[str]:
    """Return the extras that are installed as pyproject.toml and the lock files ask for them."""
    with suppress(OSError, ValueError):
        digest, *extras = STAMP.read_text(encoding="utf-8").split()
        if digest == requirements_digest() and Path(PYTHON).exists():
            return {*extras}
    return set()


def requirements_digest() -> str:
    state = hashlib.sha256(Path("pyproject.toml").read_bytes())
    for path in sorted(Path("deploy/docker").glob("requirements-*.txt")):
        state.update(path.read_bytes())
    return state.hexdigest()


def start_steps(tools: Tools, extras: set[str], bundles: Sequence[Path]) -> list[Step]:
    """Start the steps of everything that is not up to date. Return those that are reported."""
    is_installed = extras <= installed_extras()
    # Two builds of ONNX Runtime have the same files: the last one that is installed works.
    others = installed_extras() - {"cpu", "gpu"}
    installer = Installer(tools, sorted(extras | others))
    kernels, models = Kernels(tools, installer), Models(tools)
    are_needed = kernels.are_needed
    compiled = Step("", kernels.compile) if are_needed else None
    environment = packages = built = exported = None
    steps: list[Step] = []
    if not is_installed:
        environment = Step("virtual environment", installer.create_environment)
        packages = Step("packages", lambda: installer.install_packages(compiled), environment)
        steps += [environment, packages]
    if are_needed or not is_installed:
        install = partial(kernels.install, is_installed)
        built = Step(kernels.title, install, packages, compiled, counts=compiled)
        steps.append(built)
    stale = [bundle for bundle in bundles if not is_up_to_date(bundle)]
    if exports := [bundle for bundle in stale if _checkpoint(bundle).is_dir()]:
        # Not before the kernels are there: language models in int8 are run to find their outliers,
        # and kernels round otherwise than ONNX Runtime's operators.
        ready = Step("", models.start, packages)
        names = ", ".join(_checkpoint(bundle).name for bundle in exports)
        exported = Step(names, partial(models.export, exports), ready, built)
        steps.append(exported)
    pulled = [bundle for bundle in bundles if not _checkpoint(bundle).is_dir()]
    if pulled and pulled[0] in stale:
        fetched = Step("", partial(models.fetch_first, pulled), packages)
        pull = partial(models.pull, pulled)
        title = "translator of general text"
        steps.append(Step(title, pull, fetched, packages, built, exported, counts=fetched))
    return steps


def new_log(name: str) -> Path:
    """Return the path of an empty log."""
    path = LOGS / f"{name}.log"
    path.write_text("", encoding="utf-8")
    return path


def report(steps: Sequence[Step]) -> None:
    """Print a line of each step when it has ended, in order. On a terminal, count the seconds of
    the one that is waited for. A step that fails ends the program with the end of its log.
    """
    is_terminal = sys.stdout.isatty()
    for number, step in enumerate(steps, 1):
        line = f"{number}/{len(steps)} {step.title}"
        try:
            while not step.wait(1):
                if is_terminal:
                    print(f"\r\033[K{line} ... {step.seconds:.0f} s", end="", flush=True)
        except StepError as error:
            print(
                "\r\033[K" * is_terminal + f"{line} failed after {step.seconds:.0f} s", flush=True
            )
            fail(error)
        note = f", {step.note}" if step.note else ""
        print("\r\033[K" * is_terminal + f"{line}, {step.seconds:.0f} s{note}", flush=True)


def fail(error: StepError) -> NoReturn:
    """Show the end of the log and the advice, and end the program."""
    lines = error.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    print(f"The end of {error.log}:", *(f"    {line}" for line in lines), sep="\n", flush=True)
    sys.exit(error.advice)


@contextmanager
def install_lock() -> Iterator[int]:
    """Hold the lock of this source tree, which two installations at once would break."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another installation of this source tree", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


@contextmanager
def end_processes_after(tools: Tools) -> Iterator[Tools]:
    """End all tools when the block ends, however it does."""
    try:
        yield tools
    finally:
        tools.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--extras", default="cpu", help="of pyproject.toml, with commas")
    parser.add_argument("bundles", nargs="*", type=Path, metavar="BUNDLE")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with install_lock() as lock, end_processes_after(Tools(lock)) as tools:
            report(start_steps(tools, {*arguments.extras.split(",")}, arguments.bundles))
    except KeyboardInterrupt:
        sys.exit("\nStopped. The same command goes on from here.")
    except build.BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
