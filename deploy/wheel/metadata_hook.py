"""Give a package index README.md and the addresses of the project.

A relative link of README.md is an address below the project's there, of the files of this version.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# A link or a picture of Markdown, up to its target; and the attributes of HTML.
RELATIVE_TARGET = re.compile(
    r"""(?P<before>(?P<picture>!?)\[[^\[\]]*\]\(|(?P<attribute>src|href)=["'])"""
    r"""(?!https?:|mailto:|\#)(?P<path>[^)\s"']+)"""
)


class MetadataHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        url = self.config["url"]
        version = f"v{metadata['version']}"
        metadata["urls"] = {
            "Source": url,
            "Documentation": f"{url}/tree/{version}/docs",
            "Changelog": f"{url}/blob/{version}/CHANGELOG.md",
            "Issues": f"{url}/issues",
        }
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_addresses(text, url, metadata["version"]),
        }


def with_addresses(text: str, url: str, version: str) -> str:
    """Return the Markdown with addresses in place of relative links and pictures.

    url: of the project at a forge such as GitHub, which shows a file of a version at `blob` and has
    its bytes at `raw`.
    """

    def replace(match: re.Match[str]) -> str:
        is_picture = match["picture"] or match["attribute"] == "src"
        kind = "raw" if is_picture else "blob"
        return f"{match['before']}{url}/{kind}/v{version}/{match['path']}"

    return RELATIVE_TARGET.sub(replace, text)
