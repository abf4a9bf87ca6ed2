"""Write the lock files of the image: `make lock`.

uv resolves the versions. Of its hashes those of files are kept that an image can use: of Linux on
x86-64 and ARM, and of the Pythons of the official base image and of Debian. With all others the
files would be ten times as large.
"""

import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

_FOLDER = Path(__file__).parent
_PROJECT = _FOLDER.parents[1] / "pyproject.toml"
_EXTRAS = ["--extra", "postgresql", "--extra", "speech"]
_INPUTS = {
    "cpu": ["--extra", "cpu", *_EXTRAS, str(_PROJECT)],
    "gpu": ["--extra", "gpu", *_EXTRAS, str(_PROJECT)],
    "tools": [str(_FOLDER / "tools.in")],
}
_PYTHONS = (11, 12)
_ARCHITECTURES = ("x86_64", "aarch64")
_ALWAYS = "python_full_version >= '3.11'"


def main() -> None:
    requirements = {name: [*map(_line, _packages(inputs))] for name, inputs in _INPUTS.items()}
    shared = [line for line in requirements["cpu"] if line in requirements["gpu"]]
    for name in ("cpu", "gpu"):
        own_lines = [line for line in requirements[name] if line not in shared]
        requirements[name] = [f"-r {_file('shared').name}\n", *own_lines]
    for name, lines in {**requirements, "shared": shared}.items():
        _file(name).write_text("".join(lines), encoding="utf-8")


def _file(name: str) -> Path:
    return _FOLDER / f"requirements-{name}.txt"


def _packages(inputs: list[str]) -> list[dict[str, Any]]:
    with TemporaryDirectory() as folder:
        lock_file = Path(folder) / "pylock.toml"
        options = ["--quiet", "--universal", "--upgrade", "--python-version", "3.11"]
        command = ["uv", "pip", "compile", *options, *inputs, "--output-file", str(lock_file)]
        subprocess.run(command, check=True)
        packages: list[dict[str, Any]] = tomllib.loads(lock_file.read_text(encoding="utf-8"))[
            "packages"
        ]
    return packages


def _line(package: dict[str, Any]) -> str:
    condition = package.get("marker", _ALWAYS)
    marker = "" if condition == _ALWAYS else f" ; {condition}"
    hashes = [f"--hash=sha256:{digest}" for digest in sorted({*_hashes(package)})]
    return " ".join([f"{package['name']}=={package['version']}{marker}", *hashes]) + "\n"


def _hashes(package: dict[str, Any]) -> Iterator[str]:
    wheels = package.get("wheels", [])
    usable = [wheel for wheel in wheels if _is_usable(wheel["url"].rpartition("/")[2])]
    others = [package["sdist"]] if "sdist" in package else wheels
    for file in usable or others:
        yield file["hashes"]["sha256"]


def _is_usable(name: str) -> bool:
    return any(map(_fits, parse_wheel_filename(name.replace("%2B", "+"))[3]))


def _fits(tag: Tag) -> bool:
    is_linux = "manylinux" in tag.platform and tag.platform.endswith(_ARCHITECTURES)
    minor = int(tag.interpreter[3:] or 0) if tag.interpreter.startswith("cp3") else None
    is_stable = tag.abi == "abi3" and minor is not None and minor <= max(_PYTHONS)
    fits_python = minor is None or minor in _PYTHONS or is_stable
    return fits_python and tag.abi[-1:] != "t" and (is_linux or tag.platform == "any")


if __name__ == "__main__":
    main()
