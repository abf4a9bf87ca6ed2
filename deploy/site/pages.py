"""MkDocs' hooks: README.md is the first page of the site, and files outside of docs/ to which pages
have links are copied to it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
_FIRST_PAGE = _ROOT / "README.md"
_ICON = _ROOT / "serving/api/page/icon.svg"
_CODE = re.compile(r"<code>[^<]*</code>")
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the first page, the icon, and the files outside of docs/ that pages link to."""
    paths = {_FIRST_PAGE, _ICON}
    unread = [_FIRST_PAGE, *_DOCS.rglob("*.md")]
    while unread:
        targets = {*_targets(unread.pop())} - paths
        outside = {path for path in targets if path.is_file() and not path.is_relative_to(_DOCS)}
        paths |= outside
        unread += (path for path in outside if path.suffix == ".md")
    for path in sorted(paths):
        files.append(File.generated(config, _name_on_site(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of a page to where their targets are on the site."""
    assert page.file.abs_src_path is not None
    source = Path(page.file.abs_src_path)
    if source == _FIRST_PAGE:
        page.meta["hide"] = ["navigation"]  # which would have no other page
    elif not source.is_relative_to(_DOCS):
        page.meta["search"] = {"exclude": True}  # logs and pages of developers
    folder = os.path.dirname(page.file.src_uri)

    def link_on_site(link: re.Match[str]) -> str:
        return os.path.relpath(_name_on_site((source.parent / link[1]).resolve()), folder or ".")

    return _LINK.sub(link_on_site, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write `|` in the code of tables as GitHub shows it: Python-Markdown leaves `\\|` there."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), html)


def _targets(page: Path) -> Iterator[Path]:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        yield (page.parent / link).resolve()


def _name_on_site(path: Path) -> str:
    if path == _FIRST_PAGE:
        return "index.md"
    if path == _ICON:
        return _ICON.name
    if path.is_relative_to(_DOCS):
        return path.relative_to(_DOCS).as_posix()
    return f"repository/{path.relative_to(_ROOT).as_posix()}"
