"""DeepL's `/v2/translate`: what each option does, and how wrong ones are refused."""

import json
from dataclasses import replace
from typing import Any

import pytest

from serving.errors import Overloaded
from serving.pipelines.translation.job import Translation, TranslationJob
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.requests.parameters import SamplingParams
from serving.requests.request import FinishReason
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.sentences import Splitting
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World

ASKED = {"text": ["a dog", "a cat"], "source_lang": "EN", "target_lang": "FR"}


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[TranslationJob]:
    """Record what pipelines are asked for."""
    seen: list[TranslationJob] = []
    run = TranslationPipeline.run

    async def record_job(self: TranslationPipeline, job: TranslationJob) -> Translation:
        seen.append(job)
        translation: Translation = await run(self, replace(job, markup=None, protection=False))
        return translation

    monkeypatch.setattr(TranslationPipeline, "run", record_job)
    return seen


async def translate_texts(world: World, **fields: Any) -> list[dict[str, Any]]:
    response = await world.client.post("/v2/translate", json={**ASKED, **fields})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["translations"]
    return found


async def test_an_end_by_length_is_told(world: World) -> None:
    world.translator_engine.end = FinishReason.LENGTH
    response = await world.client.post("/v2/translate", json=ASKED)
    assert [translation["finish_reason"] for translation in response.json()["translations"]] == [
        "length"
    ] * 2


async def test_both_kinds_of_bodies(world: World) -> None:
    form = {**ASKED, "preserve_formatting": "0"}
    bodies: list[dict[str, Any]] = [{"json": ASKED}, {"data": ASKED}, {"data": form}]
    for sent in bodies:
        response = await world.client.post("/v2/translate", **sent)
        assert response.json() == {
            "translations": [
                {"detected_source_language": "EN", "text": text, "billed_characters": 5}
                for text in ("A DOG", "A CAT")
            ]
        }


async def test_a_form_with_one_text(world: World) -> None:
    form = {"text": "a dog", "target_lang": "fr"}
    response = await world.client.post("/v2/translate", data=form)
    assert [translation["text"] for translation in response.json()["translations"]] == ["A DOG"]


async def test_without_a_source_there_is_one_for_each_text(world: World) -> None:
    result = await translate_texts(world, source_lang=None, text=["the dog is here", ""])
    assert [item["detected_source_language"] for item in result] == ["EN", "EN"]
    assert [item["text"] for item in result] == ["THE DOG IS HERE", ""]


async def test_a_language_that_no_model_reads_is_named(world: World) -> None:
    body = {"text": ["Guten Morgen, wie geht es Ihnen heute?"], "target_lang": "FR"}
    response = await world.client.post("/v2/translate", json=body)

    assert response.status_code == 400
    assert "seems to be German" in response.json()["detail"]


CUTS: list[tuple[dict[str, Any], Splitting]] = [
    ({}, Splitting.SENTENCES),
    ({"split_sentences": "0"}, Splitting.NONE),
    ({"split_sentences": "1"}, Splitting.LINES),
    ({"split_sentences": "nonewlines"}, Splitting.NO_NEWLINES),
    ({"tag_handling": "html"}, Splitting.NO_NEWLINES),
    ({"tag_handling": "xml"}, Splitting.SENTENCES),
    ({"tag_handling": "html", "split_sentences": "1"}, Splitting.LINES),
]


async def test_where_texts_are_cut(world: World, jobs: list[TranslationJob]) -> None:
    for fields, _ in CUTS:
        await translate_texts(world, **fields)
    assert [job.splitting for job in jobs] == [splitting for _, splitting in CUTS]


async def test_tags_reach_the_job_and_commas_part_them(
    world: World, jobs: list[TranslationJob]
) -> None:
    tags = {"splitting_tags": ["par,title"], "non_splitting_tags": "span", "ignore_tags": ["raw"]}
    [first, *_] = await translate_texts(world, tag_handling="xml", outline_detection=False, **tags)

    assert first["tag_handling_version"] == "v2"
    assert [job.markup for job in jobs] == [
        Markup(
            MarkupKind.XML,
            frozenset({"par", "title"}),
            frozenset({"span"}),
            frozenset({"raw"}),
            outline_detection=False,
        )
    ]


async def test_a_type_of_models_is_a_way_to_decode(
    world: World, jobs: list[TranslationJob]
) -> None:
    used = {
        "latency_optimized": "latency_optimized",
        "quality_optimized": "quality_optimized",
        "prefer_quality_optimized": "quality_optimized",
    }
    for model_type in used:
        result = await translate_texts(world, model_type=model_type)
        assert {item["model_type_used"] for item in result} == {used[model_type]}
    assert [job.decoding.beam and job.decoding.beam.num_beams for job in jobs] == [None, 4, 4]


async def test_the_models_own_defaults(tokenizer: Tokenizer, jobs: list[TranslationJob]) -> None:
    recommended = {
        "num_beams": 3,
        "length_penalty": 0.5,
        "temperature": 0.7,
        "max_length_factor": 3.0,
    }
    async with made_world(tokenizer, generation=recommended) as world:
        await translate_texts(world)
        await translate_texts(world, model_type="latency_optimized")
    [search, quick] = [job.decoding for job in jobs]
    assert search.beam and (search.beam.num_beams, search.beam.length_penalty) == (3, 0.5)
    assert (quick.beam, quick.sampling) == (None, SamplingParams(temperature=0.7))


async def test_what_must_not_change_is_protected(world: World, jobs: list[TranslationJob]) -> None:
    await translate_texts(world)
    assert [job.protection for job in jobs] == [True]


async def test_a_document_type_without_declarations_is_left_alone(world: World) -> None:
    html = "<!DOCTYPE html>\n<html><body><p>A dog.</p></body></html>\n"
    for kind in ("xml", "html"):
        [result] = await translate_texts(world, text=[html], tag_handling=kind)
        assert result["text"] == html.replace("A dog.", "A DOG.")
    declaring = '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
    request = {**ASKED, "text": [declaring], "tag_handling": "xml"}
    refused = await world.client.post("/v2/translate", json=request)
    assert (refused.status_code, "not well-formed" in refused.text) == (400, True)


async def test_formatting_is_preserved_if_asked_for(world: World) -> None:
    result = await translate_texts(world, preserve_formatting=True)
    assert [item["text"] for item in result] == ["a DOG", "a CAT"]


WITHOUT_EFFECT: list[dict[str, Any]] = [
    {"context": "of animals"},
    {"formality": "Prefer_More"},
    {"formality": "default"},
    {"enable_beta_languages": True},
    {"show_billed_characters": False},
    {"target_lang": "fr"},
    {"source_lang": "en-GB"},
    {"style_id": None},
]


async def test_what_changes_nothing(world: World) -> None:
    plain = await translate_texts(world)
    for fields in WITHOUT_EFFECT:
        assert await translate_texts(world, **fields) == plain, fields


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"text": None}, "text: is required"),
    ({"text": []}, "text: list should have at least 1 item"),
    ({"text": ["a"] * 51}, "text: list should have at most 50 items"),
    ({"text": "a"}, "text: input should be a valid list"),
    ({"text": [1]}, "text: input should be a valid string"),
    ({"text": ["\0"]}, "text: must not contain NUL"),
    ({"text": ["\ud800"]}, "text: must be valid Unicode"),
    ({"target_lang": None}, "Value for 'target_lang' not supported."),
    ({"target_lang": "XX"}, "Value for 'target_lang' not supported."),
    ({"source_lang": "XX"}, "Value for 'source_lang' not supported."),
    ({"formality": "more"}, "formality: Target language 'FR' doesn't support formality"),
    ({"formality": "rude"}, "formality: "),
    ({"split_sentences": "2"}, "split_sentences: "),
    ({"model_type": "best"}, "model_type: "),
    ({"tag_handling": "sgml"}, "tag_handling: "),
    ({"ignore_tags": ["a"]}, "ignore_tags: needs tag_handling"),
    ({"outline_detection": False}, "outline_detection: needs tag_handling"),
    ({"preserve_formatting": "maybe"}, "preserve_formatting: "),
    ({"custom_instructions": ["be kind"]}, "custom_instructions: is not supported here: models"),
    ({"style_id": "a"}, "style_id: is not supported here: models"),
    ({"nonsense": 1}, "nonsense: is not supported here"),
    ({"glossary_id": "a", "source_lang": None}, "Value for 'source_lang' not supported."),
    ({"glossary_ids": ["a"] * 6}, "glossary_ids: "),
]


async def test_what_is_wrong_is_named(world: World) -> None:
    for fields, message in WRONG:
        content = json.dumps({**ASKED, **fields})
        response = await world.client.post("/v2/translate", content=content)
        assert response.status_code == 400, fields
        assert response.json()["message"].startswith(message), response.text
    assert not world.translator_engine.requests


NO_REQUESTS: list[tuple[dict[str, Any], int]] = [
    ({"content": b"{"}, 400),
    ({"content": b"[]"}, 400),
    ({"content": b""}, 400),
    ({"content": b"\xff", "headers": {"content-type": "application/json"}}, 400),
    ({"content": b"text=a", "headers": {"content-type": "text/plain"}}, 415),
    ({"files": {"text": (None, "a")}}, 415),
    ({"json": {**ASKED, "text": ["a" * 1001]}}, 413),
    ({"content": b"a" * 100_000}, 413),
    ({"json": {**ASKED, "glossary_id": "none"}}, 404),
]


async def test_what_is_no_request(world: World) -> None:
    for sent, status in NO_REQUESTS:
        response = await world.client.post("/v2/translate", **sent)
        assert (response.status_code, [*response.json()]) == (
            status,
            ["message", "field", "reason"],
        ), sent


async def test_other_methods_and_paths(world: World) -> None:
    got = await world.client.get("/v2/translate", params={"text": "a", "target_lang": "FR"})
    assert (got.status_code, got.json()) == (405, {"message": "Method Not Allowed"})
    for path in ("/v2/nothing", "/v3/nothing"):
        lost = await world.client.post(path)
        assert (lost.status_code, lost.json()) == (404, {"message": "Not Found"})


async def test_what_no_model_does_is_refused_by_its_name(world: World) -> None:
    for method, path in [
        *(("POST", "/v2/write/rephrase"), ("POST", "/v2/write/correct")),
        *(("GET", "/v3/style_rules?page=1"), ("POST", "/v3/style_rules")),
        *(("DELETE", "/v3/style_rules/a"), ("PUT", "/v3/style_rules/a/configured_rules")),
    ]:
        refused = await world.client.request(method, path)
        name = path.split("?")[0].split("/")[3 if "write" in path else 2]
        assert refused.status_code == 400, path
        assert refused.json()["message"].startswith(f"{name}: "), path


async def test_languages_of_resources(tokenizer: Tokenizer) -> None:
    languages: Any = {"source_languages": ["en", "pt"], "target_languages": ["en", "zh_Hans"]}
    async with made_world(tokenizer, **languages) as world:
        texts, documents, glossaries, nothing = [
            (await world.client.get(f"/v3/languages?resource={name}&include=beta")).json()
            for name in ("translate_text", "translate_document", "glossary", "write")
        ]

    assert [item["lang"] for item in texts] == ["en", "en-GB", "en-US", "pt", "zh-Hans"]
    features = ("tag_handling", "glossary", "translation_memory", "auto_detection")
    sides = {"usable_as_source": True, "usable_as_target": False, "status": "stable"}
    result = {name: {"status": "stable"} for name in features}
    assert texts[0] == {"lang": "en", "name": "English", **sides, "features": result}
    assert texts[-1]["usable_as_target"] and not texts[-1]["usable_as_source"]
    assert {*texts[-1]["features"]} == {*features[:3]}
    assert {*documents[0]["features"]} == {*features[1:]}
    assert [item["lang"] for item in glossaries] == ["en", "pt", "zh"] and nothing == []


@pytest.mark.parametrize("query", ["", "?resource=none"])
async def test_a_resource_is_named(world: World, query: str) -> None:
    refused = await world.client.get(f"/v3/languages{query}")

    assert refused.status_code == 400 and refused.json()["message"].startswith("resource: must be")


async def test_evaluating_given_translations_is_refused_by_its_name(world: World) -> None:
    refused = await world.client.post("/v1/quality-evaluations", json={"segments": []})
    assert refused.status_code == 400
    assert refused.json()["message"].startswith("quality-evaluations: no model here finds errors")


async def test_a_full_queue_says_when_to_come_again(world: World) -> None:
    world.translator_engine.refusal = Overloaded(9, 3.0)
    response = await world.client.post("/v2/translate", json=ASKED)
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    assert "try again" in response.json()["message"]


async def test_quality_is_an_extension(world: World) -> None:
    plain = await translate_texts(world)
    estimated = await translate_texts(world, quality=True)

    assert [item.pop("quality")["sentences"][0]["words"] for item in estimated] == [
        ["A", "DOG"],
        ["A", "CAT"],
    ]
    assert estimated == plain
