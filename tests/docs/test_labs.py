"""The labs of docs/labs, run from top to bottom in a kernel as students run them, with short
training and without the cells that start a server; `make labs` runs all of it.
"""

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.grid import full

LABS = Path(__file__).parents[2] / "docs" / "labs"
NOTEBOOKS = sorted(LABS.glob("*.ipynb"))
SHORT = "4"


def shortened(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Take little of what the cell tagged `parameters` sets, and leave servers out."""
    cells = [cell for cell in notebook.cells if "server" not in tags(cell)]
    for cell in cells:
        if "parameters" in tags(cell):
            cell.source, found = re.subn(r"= \d+", f"= {SHORT}", cell.source)
            assert found, cell.source
    notebook.cells = cells
    return notebook


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a kernel find this project's commands, and write nothing outside."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(LABS.parents[1]))
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))


def test_there_are_five() -> None:
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lab_is_kept_without_what_it_told(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("path", [NOTEBOOKS[0], *full(NOTEBOOKS[1:])], ids=lambda path: path.stem)
def test_a_lab_runs(path: Path) -> None:
    notebook = shortened(nbformat.read(path, as_version=4))
    place = {"metadata": {"path": str(LABS)}}
    NotebookClient(notebook, timeout=240, resources=place).execute()
    told = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [each for each in told if "image/png" in each.get("data", {})]
    assert pictures, "a lab shows what it found"
