"""`attendant deploy smoke`: a server that does all passes; what does not work is told."""

from typing import Any

from click.testing import CliRunner

from deploy.command import deploy
from tests.deploy.scripted import scripted

Answers = dict[str, list[tuple[int, Any]]]

MODELS = [{"id": "en-fr", "task": "translate"}, {"id": "llama", "task": "generate"}]
WORKS: Answers = {
    "GET /health": [(200, {"status": "ok"})],
    "GET /ready": [(200, {"status": "ready"})],
    "GET /v1/models": [(200, {"data": MODELS})],
    "GET /languages": [(200, [{"code": "en", "targets": ["fr"]}])],
    "POST /translate": [(200, {"translatedText": "Bonjour."})],
    "POST /v1/completions": [(200, {"choices": [{"text": " It is late."}]})],
    "GET /metrics": [(200, "# HELP\nattendant_batch_rows 1\nattendant_slots 2\n")],
}
NAMES = ["health", "ready", "models", "languages", "translation", "completion", "metrics"]


def smoke(url: str) -> tuple[int, dict[str, str]]:
    """The exit code, and what was found of each thing."""
    done = CliRunner().invoke(deploy, ["smoke", url])
    lines = [line.split(maxsplit=4) for line in done.output.splitlines()]
    return done.exit_code, {line[0]: f"{line[1]} {line[4]}" for line in lines}


def test_our_server_passes(server_url: str) -> None:
    code, found = smoke(server_url)
    assert [*found] == NAMES
    assert code == 0, [each for each in found.values() if not each.startswith("ok")]
    assert "transformer-en-fr" in found["models"]


def test_each_thing_that_fails_is_told() -> None:
    broken: Answers = {
        **WORKS,
        "GET /ready": [(503, {"status": "not ready"})],
        "POST /translate": [(200, {"translatedText": " "})],
        "POST /v1/completions": [(200, {"choices": []})],
        "GET /metrics": [(200, "python_info 1\n")],
    }
    with scripted(broken) as server:
        code, found = smoke(server.url)
    failed = {name for name in found if found[name].startswith("FAILED")}
    assert failed == {"ready", "translation", "completion", "metrics"}
    assert "503" in found["ready"]
    assert code == 1


def test_what_no_model_does_is_not_tried() -> None:
    only: Answers = {**WORKS, "GET /v1/models": [(200, {"data": MODELS[:1]})]}
    with scripted(only) as server:
        code, found = smoke(server.url)
    assert (code, "completion" in found) == (0, False)
    assert found["translation"] == 'ok "Bonjour."'


def test_nobody_there_fails() -> None:
    code, found = smoke("http://127.0.0.1:9")
    assert code == 1
    assert all(each.startswith("FAILED") for each in found.values())
