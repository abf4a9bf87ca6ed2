"""`/openapi.json` and what it says: schemathesis asks for all of it, and holds answers to it."""

import asyncio
import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.config import GenerationConfig
from schemathesis.openapi import from_asgi
from schemathesis.specs.openapi import checks

from serving.api.http.routing import ProtocolRoute
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.api.endpoints import ENDPOINTS
from tests.serving.api.world import World

OPERATIONS = [
    "POST /translate",
    "POST /detect",
    "GET /usage",
    "GET /languages",
    "GET /frontend/settings",
    "POST /suggest",
    "POST /translate_file",
    "GET /download_file/{name}",
    "POST /v1/completions",
    "POST /v1/chat/completions",
    "POST /v1/responses",
    "GET /v1/usage",
    "GET /v1/models",
    "GET /v1/models/{name}",
    *("POST /v1/embeddings", "POST /v1/classify", "POST /v1/fill-mask"),
    *("POST /v1/rerank", "POST /v1/score"),
    "POST /tokenize",
    "POST /detokenize",
    *("POST /v1/audio/transcriptions", "POST /v1/audio/translations"),
    "POST /score",
    "POST /v2/translate",
    "GET /v2/languages",
    "GET /v2/usage",
    "GET /v2/glossary-language-pairs",
    *("POST /v2/document", "POST /v2/document/{document_id}"),
    *("DELETE /v2/document/{document_id}", "POST /v2/document/{document_id}/result"),
    "POST /v2/document/{document_id}/segments",
    "GET /v2/glossaries",
    "POST /v2/glossaries",
    "GET /v2/glossaries/{glossary_id}",
    "DELETE /v2/glossaries/{glossary_id}",
    "GET /v2/glossaries/{glossary_id}/entries",
    *("POST /v2/write/rephrase", "POST /v2/write/correct"),
    "GET /v3/glossaries",
    "POST /v3/glossaries",
    "GET /v3/glossaries/{glossary_id}",
    "PATCH /v3/glossaries/{glossary_id}",
    "DELETE /v3/glossaries/{glossary_id}",
    "GET /v3/glossaries/{glossary_id}/entries",
    "PUT /v3/glossaries/{glossary_id}/dictionaries",
    "DELETE /v3/glossaries/{glossary_id}/dictionaries",
    "GET /v3/translation_memories",
    "POST /v3/translation_memories/import",
    "PUT /v3/translation_memories/files/{file_id}",
    "GET /v3/translation_memories/files/{file_id}",
    "GET /v3/translation_memories/jobs/{job_id}",
    "POST /v3/translation_memories/{translation_memory_id}/export",
    "GET /v3/translation_memories/{translation_memory_id}",
    "DELETE /v3/translation_memories/{translation_memory_id}",
    "GET /v3/translation_memories/{translation_memory_id}/segments",
    "GET /v3/languages",
    "POST /v1/quality-evaluations",
    "GET /health",
    "GET /ready",
    "GET /metrics",
    "GET /metrics/recent",
    "GET /v1/files",
    "POST /v1/files",
    "GET /v1/files/{file_id}",
    "DELETE /v1/files/{file_id}",
    "GET /v1/files/{file_id}/content",
    "GET /v1/batches",
    "POST /v1/batches",
    "GET /v1/batches/{batch_id}",
    "POST /v1/batches/{batch_id}/cancel",
]
TAKING = [
    operation
    for operation in OPERATIONS
    if operation.startswith(("POST", "PUT", "PATCH"))
    and not operation.endswith(
        ("/suggest", "/cancel", "/rephrase", "/correct", "/quality-evaluations")
    )
    and "translation_memories" not in operation  # made of files, which other tests send
]
REFUSED = {
    "POST /suggest": {"403"},
    "POST /v2/write/rephrase": {"400"},
    "POST /v2/write/correct": {"400"},
    "POST /v1/quality-evaluations": {"400"},
}
WITH_MODELS = [item for item in TAKING if "glossaries" not in item]
FORM, IN_PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
HEARING = ("POST /v1/audio/transcriptions", "POST /v1/audio/translations")
WITH_FILES = ("POST /translate_file", "POST /v2/document", "POST /v1/files", *HEARING)
FORMS = {"POST /translate": {FORM, IN_PARTS}, "POST /detect": {FORM, IN_PARTS}}
MODES = [(label, GenerationMode.POSITIVE) for label in OPERATIONS] + [
    (label, GenerationMode.NEGATIVE)
    for label in TAKING
    if label != "POST /v1/files"  # nothing of its kind in a form in parts is wrong
]
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "0"))  # 0: always the same few
WHOLE = pytest.param(1, id="whole", marks=pytest.mark.full)
STREAMED = (
    *("POST /translate", "POST /v1/completions"),
    *("POST /v1/chat/completions", "POST /v1/responses"),
    *HEARING,
)
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
THERE = {
    "source": "en",
    "target": "fr",
    "source_lang": "en",
    "target_lang": "fr",
    "messages": [{"role": "user", "content": "p"}],
    "input": "p",
    "entries": "dog\tchien",
}
NEEDED = {
    *("q", "source", "target", "translations", "model", "prompt", "messages", "input"),
    *("text", "target_lang", "name", "dictionaries", "entries", "source_lang"),
}


@pytest.fixture(scope="module")
def documented(tokenizer: Tokenizer) -> Iterator[Any]:
    """Return what schemathesis reads of the application; its models answer at once."""
    with asyncio.Runner() as runner:
        created = made_world(tokenizer, generator={"chat_template": CHAT_TEMPLATE})
        world = runner.run(created.__aenter__())
        yield from_asgi("/openapi.json", world.app)
        runner.run(created.__aexit__(None, None, None))


def operation(documented: Any, label: str) -> Any:
    return documented.find_operation_by_label(label)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_endpoints_are_described(documented: Any, endpoint: Any) -> None:
    described = operation(documented, f"POST {endpoint.protocol.prefix}{endpoint.path}")
    assert described.definition.raw["summary"]
    assert set(described.definition.raw["requestBody"]["content"]) == {*endpoint.reader.media_types}


async def test_each_method_of_a_path_is_registered_once(world: World) -> None:
    routes = [route for route in world.app.routes if isinstance(route, ProtocolRoute)]
    registered = [(method, route.path) for route in routes for method in route.methods or ()]
    assert len({*registered}) == len(registered)
    for endpoint in ENDPOINTS:
        path = endpoint.protocol.prefix + endpoint.path
        [route] = [
            route for route in routes if route.path == path and "POST" in (route.methods or ())
        ]
        assert (route.protocol, route.name) == (endpoint.protocol, endpoint.name)


def within_reach(case: Case) -> Case:
    """Each second request asks for what is there, and for one thing that it need not ask for:
    by chance alone hardly any is right in all its fields.
    """
    if isinstance(case.body, dict) and len(str(case.body)) % 2:
        known: dict[str, Any] = THERE | {
            "model": "shout" if case.path in ("/translate", "/score") else "story"
        }
        further = sorted(case.body.keys() - NEEDED)
        unchanged = NEEDED | {further[len(str(case.body)) % len(further)] if further else ""}
        body: dict[str, Any] = {n: value for n, value in case.body.items() if n in unchanged}
        case.body = body | {name: known[name] for name in known.keys() & body}
    if "name" in case.path_parameters and len(case.path_parameters["name"]) % 2:
        case.path_parameters["name"] = "story"
    return case


def test_the_document_is_valid_and_whole(documented: Any) -> None:
    documented.validate()
    assert [found.ok().label for found in documented.get_all_operations()] == OPERATIONS
    document = documented.raw_schema
    references = set(re.findall(r"'\$ref': '([^']*)'", str(document)))
    names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references == names
    assert not [name for name in names if "__" in name]  # the path of a module, for want of a name
    errors = [name for name in document["components"]["schemas"] if name.endswith("Error")]
    assert errors == ["PlainError", "OpenAIError", "DeepLError"]  # the same order at each start


@pytest.mark.parametrize("label", TAKING)
def test_bodies_are_required(documented: Any, label: str) -> None:
    body = operation(documented, label).definition.raw["requestBody"]

    forms = FORMS.get(label, {FORM} if "/v2" in label or "/v3" in label else set())
    assert body["required"] is True
    expected = {IN_PARTS} if label in WITH_FILES else {"application/json"} | forms
    assert {*body["content"]} == expected


@pytest.mark.parametrize("label", OPERATIONS)
def test_the_least_that_is_told_of_an_operation(documented: Any, label: str) -> None:
    responses = operation(documented, label).definition.raw["responses"]

    statuses = {"500", "503"} | REFUSED.get(label, set())
    if label in TAKING:
        statuses |= {"400", "404", "413"}
    if label in WITH_MODELS:
        statuses |= {"429", "504"}
    if "{" in label:
        statuses |= {"404"}
    assert {*responses} >= statuses
    assert len({*responses} & {"200", "201", "202", "204"}) == (label not in REFUSED)
    is_streamed = "text/event-stream" in responses.get("200", {}).get("content", ())
    assert is_streamed == (label in STREAMED)


@pytest.mark.parametrize("label", OPERATIONS)
def test_titles_say_what_calls_do(documented: Any, label: str) -> None:
    description = operation(documented, label).definition.raw
    assert len(description["summary"].split()) > 1 and not re.search(
        "[`.;:_]", description["summary"]
    )
    assert description["description"].replace("`", "").startswith(description["summary"])


@pytest.mark.parametrize(
    "name", ["TranslateBody", "CompletionBody", "ChatBody", "ResponseBody", "TranscriptionBody"]
)
def test_each_field_has_a_sentence(documented: Any, name: str) -> None:
    fields = documented.raw_schema["components"]["schemas"][name]["properties"]
    assert [each for each, told in fields.items() if not told.get("description")] == []


@pytest.mark.parametrize("share", [pytest.param(5, id="fifth"), WHOLE])
@pytest.mark.parametrize(("label", "mode"), MODES)
def test_answers_are_what_the_document_says(
    documented: Any, label: str, mode: GenerationMode, share: int
) -> None:
    request = operation(documented, label)

    @given(request.as_strategy(generation_mode=mode))
    @settings(
        max_examples=-(-EXAMPLES // len(MODES)) or 25 // share,
        suppress_health_check=list(HealthCheck),
        derandomize=not EXAMPLES,
    )
    def ask(case: Case) -> None:
        within_reach(case).call_and_validate(checks=CHECKS)

    ask()


@pytest.mark.parametrize("share", [pytest.param(15, id="fifteenth"), WHOLE])
@pytest.mark.parametrize("label", OPERATIONS)
def test_answers_at_the_borders_are_what_the_document_says(
    documented: Any, label: str, share: int
) -> None:
    cases = documented.iter_coverage_cases(
        operation(documented, label),
        generation_modes=list(GenerationMode),
        generation_config=GenerationConfig(),
    )
    for case in islice(cases, 0, 300, share):
        within_reach(case).call_and_validate(checks=CHECKS)
