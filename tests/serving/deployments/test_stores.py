"""What a server brings to its version at its start, and copies, is all that it stores."""

import re
from pathlib import Path

from serving.deployments.stores import SCHEMAS

SERVING = Path(__file__).parents[3] / "serving"
OF_THE_STORAGE = {"files"}  # which a database has, and a folder has as files


def test_every_schema_is_listed() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in SERVING.rglob("*.py"))
    defined = re.findall(r'^SCHEMA = Schema\(\s*"(\w+)"', sources, re.MULTILINE)
    listed = [schema.name for schema in SCHEMAS]
    assert sorted(listed) == sorted({*defined} - OF_THE_STORAGE)
    assert len(listed) == len({*listed}), "two stores would share a file"
