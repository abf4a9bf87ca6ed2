"""Turns what was rendered into files: plain YAML that people can read, keep and compare."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

Files = dict[str, str]  # relative path -> text

_WIDTH = 110


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are, and nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(*documents: Any) -> str:
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=_WIDTH)


def shipped(path: str) -> str:
    """Return the text of a data file of this package."""
    return files("deploy").joinpath(path).read_text(encoding="utf-8")


def write(folder: Path, rendered: Files) -> None:
    for name, text in rendered.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
