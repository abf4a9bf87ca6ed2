"""Reads the README and the pages in docs/ as their readers find them: links, paths, quoted code."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP_FOLDERS = ("deploy", "docs", "export", "loadtest", "models", "serving", "tests")

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(rf"(?<![\w./~-])(?:{'|'.join(TOP_FOLDERS)})/[\w./*{{}},-]*")
_PLACEHOLDER = re.compile(r"[A-Z]{2,}\.")  # models/configs/NAME.py: a file that a reader may write
_INDENT = "  "


def all_pages() -> list[Path]:
    folders = (ROOT / "docs", ROOT / "docs/tutorials")
    return [ROOT / "README.md", *sorted(page for folder in folders for page in folder.glob("*.md"))]


def blocks_of(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield each code block with its line in the text and its language."""
    for match in _FENCED.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[1], match[2]


def quoted(text: str, language: str) -> list[str]:
    """Return the code blocks that are marked as being in a language."""
    return [block for _, name, block in blocks_of(text) if name == language]


def missing_links(page: Path, text: str) -> Iterator[str]:
    """Yield the relative links that lead to no file, or to no heading of it."""
    for link in _LINK.findall(_FENCED.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, heading = link.partition("#")
        if not leads_somewhere(page.parent / name if name else page, heading):
            yield link


def leads_somewhere(target: Path, heading: str) -> bool:
    if not heading:
        return target.exists()
    return target.is_file() and heading in headings(target.read_text(encoding="utf-8"))


def headings(text: str) -> set[str]:
    """Return the anchors that GitHub makes of the headings."""
    titles = re.findall(r"^#+ (.*)$", _FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def missing_paths(text: str, root: Path = ROOT) -> Iterator[str]:
    """Yield the paths that begin with a folder of this repository and are not there."""
    for path in _PATH.findall(text):
        path = path.rstrip(".,")
        if not _PLACEHOLDER.search(path) and not any(root.glob(path.rstrip("/"))):
            yield path


def tree_paths(block: str) -> Iterator[str]:
    """Yield the paths that an indented list of folders and files names.

    The folder of a line is the last one that is indented less; a line may name several files.
    """
    folders: list[tuple[int, str]] = []
    for line in filter(str.strip, block.splitlines()):
        indent = len(line) - len(line.lstrip())
        folders = [each for each in folders if each[0] < indent]
        parent = "".join(name for _, name in folders)
        for name in re.split(r"\s{3,}", line.strip())[0].split():
            yield parent + name
            if name.endswith("/"):
                folders.append((indent, name))
