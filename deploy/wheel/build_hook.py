"""Compile the native kernels when the package is installed or a wheel is built.

An editable installation has the kernels of this machine, in the source tree. A wheel has those of
all processors of an architecture, and a tag that says which versions of glibc they run with. Its
packages lie in a folder of their own, which a .pth file adds to Python's path: see docs/design.md.
"""

import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TERMINAL = Path("/dev/tty")  # of whoever installs, if there is one
ZIG = "ziglang>=0.13,<0.17"
FOLDER = "attendant-server"  # of the wheel's packages, as in pyproject.toml


class BuildHook(BuildHookInterface):
    def _build_module(self) -> Any:
        """Import `serving.kernels.build` from the source tree."""
        if self.root not in sys.path:
            sys.path.insert(0, self.root)
        from serving.kernels import build

        return build

    def dependencies(self) -> list[str]:
        """Return the requirements of the build: Zig for other machines, or if no compiler that is
        installed works.

        Only a build shows that. What it makes for an editable installation is up to date when
        `initialize` asks for it.
        """
        build = self._build_module()
        try:
            if build.architecture_of_other_machines() is not None:
                return [ZIG]
            build.build()
        except build.BuildError:
            return [ZIG] if build.may_be_built() else []
        return []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version: of the wheel, "editable" or "standard"."""
        build = self._build_module()
        try:
            if version == "editable":
                build.build()
                return
            self._folder = TemporaryDirectory()
            self._add_path(build_data)
            self._add_library(build, build_data)
        except build.BuildError as error:
            self._warn(f"Attendant is installed without native kernels: {error}. {build.COST}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()

    def _add_path(self, build_data: dict[str, Any]) -> None:
        path = Path(self._folder.name) / f"{FOLDER}.pth"
        path.write_text(f"{FOLDER}\n", encoding="ascii")
        build_data["force_include"][str(path)] = path.name

    def _add_library(self, build: Any, build_data: dict[str, Any]) -> None:
        """Add a library for other machines to the wheel, or else what says why there is none."""
        library = Path(self._folder.name) / build.LIBRARY.name
        architecture = build.architecture_of_other_machines() or build.ARCHITECTURE
        names = build.instruction_sets_of(architecture)
        added = build.problem_path(library)
        try:
            build.build(library, instruction_sets=names, is_portable=True)
            added = library
            glibc = build.oldest_glibc(library).replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-manylinux_{glibc}_{architecture}"
        finally:
            place = build.LIBRARY.with_name(added.name).relative_to(self.root)
            build_data["force_include"][str(added)] = f"{FOLDER}/{place}"

    def _warn(self, message: str) -> None:
        """Show the message on the terminal, too: installers hide the output of a build that ends
        well.
        """
        self.app.display_warning(message)
        with suppress(OSError):
            TERMINAL.write_text(f"\nwarning: {message}\n", encoding="utf-8")
