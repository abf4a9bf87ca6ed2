"""A Python for 64-bit Arm, which qemu-user runs: Debian's packages and PyPI's wheels, unpacked in
the user's cache folder. Nothing is installed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from serving.kernels import build

REPOSITORY = Path(__file__).parents[3]
QEMU = "qemu-aarch64"
TOOLS = (QEMU, "apt-get", "dpkg-deb")
DEBIAN_PACKAGES = ("python3", "libstdc++6", "libgomp1")
# What kernels, their tests and a translation import, in the versions of this environment.
WHEELS = (
    "babel",
    "click",
    "hypothesis",
    "jinja2",
    "llguidance",
    "lxml",
    "markdown-it-py",
    "ml-dtypes",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxruntime",
    "pillow",
    "prometheus-client",
    "protobuf",
    "py3langid",
    "pydantic",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pyyaml",
    "rapidfuzz",
    "safetensors",
    "sentencepiece",
    "sentencex",
    "tokenizers",
    "tqdm",
)
NEWEST_GLIBC = 36  # of Debian 12, as the minor version
# ONNX Runtime crashes where this describes an x86 processor, as it does under qemu-user.
CPUINFO = """processor\t: {number}
BogoMIPS\t: 243.75
Features\t: fp asimd {features}
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
FEATURES = {"max": "asimddp i8mm", "cortex-a72": ""}  # by qemu's CPU


class Unavailable(Exception):
    """There is no Python for Arm here; the message says why."""


def prepare_python() -> Path:
    """Return the folder of the Python, which is downloaded once: 16 MB of Debian's packages and
    90 MB of wheels. Raise Unavailable if that is not possible.
    """
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise Unavailable(f"not installed: {', '.join(missing)}")
    requirements = [f"{name}=={version(name)}" for name in WHEELS]
    key = hashlib.sha256(repr([DEBIAN_PACKAGES, requirements]).encode()).hexdigest()[:16]
    folder = build.cache_folder() / "aarch64" / key
    if not (folder / "complete").exists():
        try:
            _unpack_debian(folder)
            _unpack_wheels(folder, requirements)
        except subprocess.CalledProcessError as error:
            raise Unavailable(
                f"{' '.join(error.cmd[:2])}: {error.stderr.strip()[-300:]}"
            ) from error
        (folder / "complete").touch()
    return folder


def _unpack_debian(folder: Path) -> None:
    """Let apt resolve the packages for an empty system of this architecture."""
    state = folder / "apt"
    for name in ("lists/partial", "archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
        "APT::Install-Recommends": "0",
        "Debug::NoLocking": "1",
        "Dir::State::status": state / "status",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state,
        "Dir::Cache::archives": state / "archives",
    }
    apt = [
        "apt-get",
        *(part for name, value in settings.items() for part in ("-o", f"{name}={value}")),
    ]
    _run([*apt, "update"])
    _run([*apt, "install", "--download-only", "--yes", *DEBIAN_PACKAGES])
    for package in (state / "archives").glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(folder / "root")])
    shutil.rmtree(state)


def _unpack_wheels(folder: Path, requirements: Sequence[str]) -> None:
    python = _python(folder).name.removeprefix("python")
    platforms = [f"manylinux_2_{minor}_aarch64" for minor in range(NEWEST_GLIBC, 16, -1)]
    options = [f"--platform={name}" for name in [*platforms, "manylinux2014_aarch64"]]
    options += [f"--python-version={python}", "--only-binary=:all:", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", "--target", str(folder / "packages")]
    _run([*command, *options, *requirements])


def _python(folder: Path) -> Path:
    return next((folder / "root/usr/bin").glob("python3.[0-9]*[0-9]"))


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def run_python(
    folder: Path, arguments: Sequence[str], cpu: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the Python with the packages and the source tree on one of qemu's CPUs."""
    root = folder / "root"
    for name in ("proc", "sys"):  # what lies in the root hides the machine's own
        (root / name).mkdir(exist_ok=True)
    features = FEATURES[cpu]
    (root / "proc/cpuinfo").write_text(
        "".join(CPUINFO.format(number=i, features=features) for i in range(os.cpu_count() or 1))
    )
    paths = os.pathsep.join(map(str, (folder / "packages", REPOSITORY)))
    return subprocess.run(
        [QEMU, "-L", str(root), str(_python(folder)), *arguments],
        env={**os.environ, **(environment or {}), "QEMU_CPU": cpu, "PYTHONPATH": paths},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
