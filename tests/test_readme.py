"""The README's requests work by copy and paste: each is run in a shell against a real server."""

import re
import subprocess
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
EXAMPLES = [block for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "curl" in block]


def test_there_is_an_example_for_each_endpoint() -> None:
    paths = set(re.findall(r"localhost:8000(/[\w/]+)", "".join(EXAMPLES)))
    assert paths == {
        "/translate",
        "/score",
        "/languages",
        "/v1/completions",
        "/v1/models",
        "/health",
        "/ready",
        "/metrics",
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split()[2])
def test_the_example_works(example: str, server_url: str) -> None:
    command = example.replace("curl ", "curl --fail-with-body --max-time 60 ")
    command = command.replace("localhost:8000", server_url)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
