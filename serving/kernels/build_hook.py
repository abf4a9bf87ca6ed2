"""Compile the native kernels when the package is installed or a wheel is built."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TERMINAL = Path("/dev/tty")  # of whoever installs, if there is one


class KernelsBuildHook(BuildHookInterface):
    def _build_module(self) -> Any:
        """Import `serving.kernels.build` from the source tree."""
        if self.root not in sys.path:
            sys.path.insert(0, self.root)
        from serving.kernels import build

        return build

    def dependencies(self) -> list[str]:
        """Return the requirements of the build: a compiler, if none that is installed works.

        Only a build shows that. What it makes is up to date when `initialize` asks for it.
        """
        build = self._build_module()
        try:
            build.build()
        except build.BuildError:
            return ["ziglang>=0.13,<0.17"] if build.may_be_built() else []
        return []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build = self._build_module()
        try:
            library = build.build()
        except build.BuildError as error:
            self._warn(f"Attendant is installed without native kernels: {error}. {build.COST}")
            library = build.LIBRARY
        else:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-linux_{build.ARCHITECTURE}"
        build_data["artifacts"].append(str(library.relative_to(self.root).with_suffix(".*")))

    def _warn(self, message: str) -> None:
        """Show the message on the terminal, too: installers hide the output of a build that ends
        well.
        """
        self.app.display_warning(message)
        with suppress(OSError):
            TERMINAL.write_text(f"\nwarning: {message}\n", encoding="utf-8")
