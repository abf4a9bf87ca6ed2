"""Tests that what `make` would run are commands that `attendant` knows, on every shipped
checkpoint, and that `make serve` does nothing twice.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import dropwhile, takewhile
from pathlib import Path
from threading import Thread

import click
import pytest

from deploy import install
from tests.docs.commands import parsed

ROOT = Path(__file__).parent.parent
SHIPPED = [path.parent.name for path in ROOT.glob("models/checkpoints/*/config.json")]

# A Python that installs nothing and writes down what it was asked for.
PYTHON = """#!/bin/sh
case "$1 $2" in
    "-m export.batch")
        while read -r command source option output rest; do
            echo "attendant $command $source $option $output $rest" >>calls
            [ "$source" = "$BROKEN" ] && { echo "a long story" >&2; exit 2; }
            mkdir -p "$output" && touch "$output/bundle.json"
            echo
        done ;;
    "-c "*)
        echo "fetch $3" >>calls
        [ -z "$FETCH_SECONDS" ] || exec sleep "$FETCH_SECONDS"
        echo "a long story" >&2
        case " $NOT_FETCHED " in *" $3 "*) exit 2 ;; esac ;;
    "-m pip")
        [ "$3" = install ] || exit 0
        echo "$@" >>calls
        exit "${PIP_STATUS:-0}" ;;
esac
"""
UV = """#!/bin/sh
echo "uv $@" >>calls
case "$*" in *"$UV_REFUSES"*) echo "no version of that" >&2; exit 1 ;; esac
"""
ATTENDANT = """#!/bin/sh
echo "attendant $@" >>calls
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout that is installed, with tools that only write down their calls. Its path has a
    space.
    """
    clone = tmp_path / "a clone"
    binaries = clone / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "export", "models", "deploy"):
        (clone / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "serving/kernels", clone / "serving/kernels")
    (clone / "serving/__init__.py").touch()
    (clone / "serving/bundle").symlink_to(ROOT / "serving/bundle")
    (clone / "serving/kernels/attendant_kernels.key").touch()
    for name, script in (("python", PYTHON), ("uv", UV), ("attendant", ATTENDANT)):
        (binaries / name).write_text(script)
        (binaries / name).chmod(0o755)
    stamp(clone, "cpu", "speech")
    return clone


def stamp(clone: Path, *extras: str) -> None:
    """Write down that the extras are installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(clone)
        install.STAMP.write_text("\n".join([install.requirements_digest(), *extras]))


def environment(clone: Path, **variables: str) -> dict[str, str]:
    outer = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    cache = {"XDG_CACHE_HOME": str(clone / "cache"), "UV_REFUSES": "nothing"}
    return {**outer, **cache, **variables}


def make(clone: Path, *arguments: str, **variables: str) -> tuple[list[str], str, int]:
    """Return the calls of the tools, what `make` said, and its status."""
    done = subprocess.run(
        ["make", "DEVICE=cpu", *arguments],
        cwd=clone,
        env=environment(clone, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    calls = clone / "calls"
    lines = calls.read_text().splitlines() if calls.exists() else []
    calls.unlink(missing_ok=True)
    return lines, done.stdout, done.returncode


def dry_run(*arguments: str) -> list[list[str]]:
    """The calls of a dry run."""
    done = subprocess.run(
        ["make", "--dry-run", *arguments],
        cwd=ROOT,
        env=environment(ROOT),
        capture_output=True,
        text=True,
        check=True,
    )
    return [shlex.split(line) for line in done.stdout.replace("\\\n", "").splitlines()]


def call_of_attendant(calls: list[list[str]]) -> click.Context:
    [words] = [words for words in calls if ".venv/bin/attendant" in words]
    words = list(dropwhile(lambda word: not word.endswith("/attendant"), words))
    return parsed(list(takewhile(lambda word: not word.startswith(">"), words)))


@pytest.mark.parametrize(
    ("device", "provider", "precision"), [("cpu", "cpu", "int8"), ("gpu", "cuda", "fp16")]
)
def test_serve_exports_and_serves_what_is_shipped(
    device: str, provider: str, precision: str
) -> None:
    calls = dry_run("serve", f"DEVICE={device}", "PORT=1234", "HOST=0.0.0.0")
    bundles = [f"build/bundles/{name}-{precision}" for name in SHIPPED]
    [installed] = [words for words in calls if "deploy.install" in words]
    assert installed[installed.index("--extras") + 1] == f"{device},speech"
    pulled = [f"build/bundles/{name}-{precision}" for name in ("firefox-en-fr", "bergamot-en-pt")]
    assert {*bundles, *pulled} <= {*installed}
    serve = call_of_attendant(calls).params
    assert {*bundles} <= {*map(str, serve["bundles"])}
    assert (serve["device"], serve["port"], serve["host"]) == (provider, 1234, "0.0.0.0")


def test_bench_smoke_exports_both_precisions_of_one_model() -> None:
    [installed] = [words for words in dry_run("bench-smoke") if "deploy.install" in words]
    model = "build/bundles/transformer-en-fr"
    assert installed[-2:] == [f"{model}-int8", f"{model}-fp32"]


def test_models_are_exported_in_order_and_once(clone: Path) -> None:
    calls, output, _ = make(clone, "serve", "PRECISION=fp32")
    exports = [parsed(shlex.split(call)) for call in calls if call.startswith("attendant ")][:-1]
    assert [context.info_name for context in exports] == [*["export"] * len(SHIPPED), "pull"]
    assert {context.params["precision"] for context in exports} == {"fp32"}
    outputs = [str(context.params["output"]) for context in exports]
    assert outputs[-1] == "build/bundles/firefox-en-fr-fp32"
    assert sorted(outputs[:-1]) == sorted(f"build/bundles/{name}-fp32" for name in SHIPPED)
    assert [call for call in calls if call.startswith("fetch")] == ["fetch firefox/en-fr"]
    lines = output.splitlines()
    assert (
        lines[0].startswith("1/2 ") and "transformer-en-fr" in lines[0] and lines[0].endswith(" s")
    )
    assert lines[1].startswith("2/2 translator of general text, ")
    assert lines[1].endswith(" s, firefox-en-fr")

    again, output, _ = make(clone, "serve", "PRECISION=fp32")
    assert again == calls[-1:] and again[0].startswith("attendant serve")
    assert [line for line in output.splitlines() if "/bin/attendant" not in line] == []
    _, *bundles = again[0].partition(" --device")[0].split()
    assert bundles[-1] == "build/bundles/firefox-en-fr-fp32"
    assert [*(clone / "build/bundles").glob("*.log")] == []


def test_what_cannot_be_fetched_costs_one_line_and_is_tried_again(clone: Path) -> None:
    names = "firefox/en-fr bergamot-en-pt"
    calls, output, status = make(clone, "serve", NOT_FETCHED=names)
    again, _, _ = make(clone, "serve")

    assert status == 0 and "bergamot" not in calls[-1] and "firefox" not in calls[-1]
    assert {"fetch firefox/en-fr", "fetch bergamot-en-pt"} <= {*calls}
    [line] = [line for line in output.splitlines() if "translator of general text" in line]
    assert "none: firefox-en-fr could not be fetched, see build/logs/firefox-en-fr.log" in line
    assert "nor bergamot-en-pt" in line and "a long story" not in output
    assert "a long story" in (clone / "build/logs/bergamot-en-pt.log").read_text()
    assert again[0] == "fetch firefox/en-fr" and again[-1].count("firefox-en-fr-int8") == 1


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"NOT_FETCHED": "firefox/en-fr"}, "fetched, see build/logs/firefox-en-fr.log"),
        ({"BROKEN": "firefox/en-fr"}, "exported, see build/logs/models.log"),
    ],
)
def test_without_the_first_translator_the_second_is_taken(
    clone: Path, variables: dict[str, str], reason: str
) -> None:
    calls, output, status = make(clone, "serve", **variables)
    assert status == 0 and "bergamot-en-pt-int8" in calls[-1] and "firefox" not in calls[-1]
    assert f" s, bergamot-en-pt: firefox-en-fr could not be {reason}\n" in output

    again, output, _ = make(clone, "serve", **variables)
    assert again[0] == "fetch firefox/en-fr" and "fetch bergamot-en-pt" not in again
    assert f" s, bergamot-en-pt: firefox-en-fr could not be {reason}\n" in output


def test_an_export_that_fails_shows_the_end_of_its_log(clone: Path) -> None:
    calls, output, status = make(clone, "bundles", BROKEN="models/checkpoints/llama-en")
    assert status != 0 and "build/logs/models.log" in output and "a long story" in output
    exported = {path.parent.name for path in clone.glob("build/bundles/*/bundle.json")}
    calls, _, _ = make(clone, "bundles")
    assert "llama-en-int8" not in exported
    assert {Path(shlex.split(call)[4]).name for call in calls} == {
        f"{name}-int8" for name in SHIPPED
    } - exported


def test_other_requirements_are_installed_in_the_versions_of_the_image(clone: Path) -> None:
    (clone / ".venv/installed").write_text("of an earlier pyproject.toml\ncpu")
    calls, output, _ = make(clone, "bundles")
    first, second = [call for call in calls if call.startswith("uv ")]
    assert "-r pyproject.toml" in first and "requirements-shared.txt" in first
    assert "--extra=cpu" in first and "--reinstall" not in first
    assert second.endswith("--no-deps --editable .")
    titles = [line.partition(",")[0] for line in output.splitlines()]
    assert titles[:2] == ["1/4 virtual environment", "2/4 packages"]
    assert not [call for call in make(clone, "bundles")[0] if call.startswith("uv ")]


def test_where_the_index_lacks_a_version_others_are_taken(clone: Path) -> None:
    stamp(clone)
    calls, _, status = make(clone, "bundles", UV_REFUSES="requirements-shared.txt")
    installs = [call for call in calls if call.startswith("uv ")]
    assert status == 0 and len(installs) == 3
    assert "requirements-shared.txt" not in installs[1]


def test_pip_installs_where_uv_cannot(clone: Path) -> None:
    stamp(clone)
    calls, _, status = make(clone, "bundles", UV_REFUSES="pip install")
    installs = [call for call in calls if call.startswith("-m pip install")]
    assert status == 0
    assert installs == [
        "-m pip install --editable .[cpu]",
        "-m pip install --no-deps --editable .",
    ]


def test_what_cannot_be_installed_is_told_with_the_end_of_the_log(clone: Path) -> None:
    stamp(clone)
    _, output, status = make(clone, "bundles", UV_REFUSES="pip install", PIP_STATUS="1")
    assert status != 0 and "2/4 packages failed after" in output
    assert "build/logs/" in output and "no version of that" in output


def test_a_killed_installation_is_done_anew(clone: Path) -> None:
    (clone / ".venv/installed").write_text("")
    calls, _, _ = make(clone, "bundles")
    assert "--reinstall" in next(call for call in calls if "pyproject.toml" in call)


def test_develop_installs_all_and_serve_takes_it(clone: Path) -> None:
    calls, _, _ = make(clone, "develop")
    installs = next(call for call in calls if "pyproject.toml" in call)
    assert {"--extra=cpu", "--extra=train", "--extra=dev"} <= {*installs.split()}
    assert (clone / ".venv/installed").read_text().split()[1:] == ["cpu", "dev", "speech", "train"]
    assert not [call for call in make(clone, "bundles")[0] if call.startswith("uv ")]


def test_another_device_takes_the_place_of_the_first(clone: Path) -> None:
    stamp(clone, "cpu", "train")
    calls, _, _ = make(clone, "bundles", "DEVICE=gpu")
    installs = next(call for call in calls if "pyproject.toml" in call).split()
    assert [each for each in installs if "--extra=" in each] == ["--extra=gpu", "--extra=train"]
    assert (clone / ".venv/installed").read_text().split()[1:] == ["gpu", "train"]


def test_ctrl_c_ends_all_tools_and_the_next_run_goes_on(clone: Path) -> None:
    command = ["python3", "-m", "deploy.install", "build/bundles/bergamot-en-pt-int8"]
    variables = environment(clone, FETCH_SECONDS="1000")
    process = subprocess.Popen(command, cwd=clone, env=variables, stderr=subprocess.PIPE, text=True)
    while not (clone / "calls").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1 and "Stopped" in errors and "Traceback" not in errors
    (clone / "calls").unlink()
    calls, output, status = make(clone, "models")
    assert status == 0 and "Waiting" not in output and "fetch firefox/en-fr" in calls


def test_on_a_terminal_the_seconds_are_counted(clone: Path) -> None:
    master, terminal = os.openpty()
    command = ["python3", "-m", "deploy.install", "build/bundles/bergamot-en-pt-int8"]
    variables = environment(clone, FETCH_SECONDS="2")
    process = subprocess.Popen(command, cwd=clone, env=variables, stdout=terminal)
    assert process.wait(60) == 0
    output = os.read(master, 10_000).decode()
    os.close(master)
    os.close(terminal)
    assert "1/1 translator of general text ... 1 s" in output
    assert "\033[K1/1 translator of general text, " in output


def test_kernels_that_cannot_be_built_cost_one_line(clone: Path) -> None:
    (clone / "serving/kernels/attendant_kernels.key").unlink()
    calls, output, status = make(clone, "bundles", PATH=path_without_compilers(clone))
    [line] = [line for line in output.splitlines() if "native kernels" in line]
    assert status == 0 and "no C++ compiler is installed" in line and "2 to 3 times" in line
    assert len([call for call in calls if call.startswith("uv ")]) == 1  # its build has ziglang
    again, output, _ = make(clone, "bundles", PATH=path_without_compilers(clone))
    assert again == [] and "no C++ compiler is installed" in output


def path_without_compilers(clone: Path) -> str:
    binaries = clone / "bin"
    binaries.mkdir(exist_ok=True)
    python = Path(sys.base_prefix) / "bin/python3"
    (binaries / "python3").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (binaries / "python3").chmod(0o755)
    for name in ("sh", "bash", "make", "mkdir", "touch"):
        if not (binaries / name).exists():
            (binaries / name).symlink_to(shutil.which(name) or name)
    return str(binaries)


def test_uv_does_what_pip_is_configured_to_do() -> None:
    options, environment = install.uv_configuration(
        ":env:.cert='/etc/a.pem'\n"
        "global.index-url='https://mirror/simple'\n"
        "global.extra-index-url='https://one/simple\\nhttps://two/simple'\n"
        "user.find-links='/wheels'\n"
        "global.trusted-host='mirror'\n"
        "global.disable-pip-version-check='1'\n"
    )
    assert options[1:] == [
        "--index-url=https://mirror/simple",
        "--extra-index-url=https://one/simple",
        "--extra-index-url=https://two/simple",
        "--find-links=/wheels",
        "--allow-insecure-host=mirror",
    ]
    assert environment["SSL_CERT_FILE"] == "/etc/a.pem"


def test_tools_may_end_while_they_are_stopped(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        tools = install.Tools(lock.fileno())
        log = tmp_path / "log"
        threads = [Thread(target=wait_until_stopped, args=(tools, log)) for _ in range(20)]
        for thread in threads:
            thread.start()
        while log.read_text().count("$ sleep") < 20 if log.exists() else True:
            time.sleep(0.01)
        tools.stop()
        for thread in threads:
            thread.join()


def wait_until_stopped(tools: install.Tools, log: Path) -> None:
    with suppress(install.Stopped):
        tools.run(log, "sleep", "60")
