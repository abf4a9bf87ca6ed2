"""Compile the native kernels when the package is installed or a wheel is built."""

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsBuildHook(BuildHookInterface):
    def _build_module(self) -> Any:
        """Import `serving.kernels.build` from the source tree."""
        if self.root not in sys.path:
            sys.path.insert(0, self.root)
        from serving.kernels import build

        return build

    def dependencies(self) -> list[str]:
        """Return the requirements of the build: a compiler if none is installed."""
        return [] if self._build_module().compilers() else ["ziglang>=0.13,<0.17"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build = self._build_module()
        try:
            library = build.build()
        except build.BuildError as error:
            self.app.display_warning(f"Native kernels are left out: {error}")
            return
        made = str(library.relative_to(self.root).with_suffix(".*"))
        build_data["artifacts"].append(made)
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-linux_x86_64"
