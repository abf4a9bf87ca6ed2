"""The documentation as a site: it is built without a warning, and loads nothing from elsewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

CONFIGURATION = ROOT / "deploy/site/mkdocs.yml"
# What a browser loads by itself: scripts, pictures, frames, style sheets and icons.
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?([^\" >]+)|<link\b[^>]*\bhref=\"?([^\" >]+)"
)

pytest.importorskip("mkdocs")


def build(configuration: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(
        [*command, "--config-file", str(configuration), "--site-dir", str(site)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(CONFIGURATION, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = (path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
    names = (page.with_suffix("") if page.name != "README.md" else page.parent for page in pages)
    assert [str(name) for name in names if not (site / name / "index.html").exists()] == []


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = {
        address
        for page in site.rglob("*.html")
        for addresses in LOADED.findall(page.read_text(encoding="utf-8"))
        for address in addresses
        if address
    }
    assert len(loaded) > 5
    assert [address for address in loaded if re.match(r"\w+:|//", address)] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert [text for text in styles if re.search(r"url\([\"']?(?:https?:)?//", text)] == []


def test_it_has_links_out_of_the_folder_of_pages(site: Path) -> None:
    text = (site / "deploy/index.html").read_text(encoding="utf-8")
    assert "../repository/deploy/helm/#values" in text
    assert (site / "repository/deploy/helm/index.html").exists()


def test_code_in_tables_is_as_on_github(site: Path) -> None:
    text = (site / "serving/index.html").read_text(encoding="utf-8")
    assert "--device auto|cpu|cuda" in text


def test_a_wrong_anchor_fails_the_build(tmp_path: Path) -> None:
    for name in ("deploy/site", "docs", "serving/api/page"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "README.md").write_text("# First\n\n[no heading](docs/tour.md#nothing)\n")
    done = build(tmp_path / "deploy/site/mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "#nothing" in done.stderr + done.stdout
