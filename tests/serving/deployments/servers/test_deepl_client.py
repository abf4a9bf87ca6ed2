"""A real server asked by DeepL's own client, unchanged: what that client's own tests check."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import deepl
import pytest
from click.testing import CliRunner
from deepl import http_client
from deepl.api_data import MultilingualGlossaryDictionaryEntries

from serving.cli import main
from tests.served import int8_bundle, served_with_console

pytestmark = pytest.mark.full

NOBODYS = "96ab91fd-e715-41a1-adeb-5d701f84a483"
KEYS = {
    "rich": (),
    "poor": ("--characters", "20"),
    "slow": ("--rate", "0.8"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """Its URL and its keys. It translates English to French and, at random, German and back."""
    folder = tmp_path_factory.mktemp("deepl")
    path = str(folder / "keys.json")
    keys = {
        name: CliRunner().invoke(main, ["keys", "create", name, "--file", path, *limits]).output
        for name, limits in KEYS.items()
    }
    bundles = [int8_bundle("transformer-en-fr", "transformer", folder)]
    for source, target in (("de", "en"), ("en", "de")):
        languages = {"source_languages": [source], "target_languages": [target]}
        bundles.append(int8_bundle(f"{source}-{target}", "transformer", folder, **languages))
    group = {"bundles": bundles, "cpus_per_replica": 1, "engines": 1, "threads": 1, "replicas": 2}
    config = {
        "groups": [{**group, "max_wait_seconds": 600.0}],
        "access": {"keys": "keys.json"},
        "state": str(folder / "state"),
    }
    with served_with_console(config, folder) as (url, _):
        yield url, {name: key.strip() for name, key in keys.items()}


@pytest.fixture
def client(server: tuple[str, dict[str, str]]) -> Iterator[deepl.DeepLClient]:
    url, keys = server
    client = deepl.DeepLClient(keys["rich"], server_url=url)
    yield client
    client.close()


@pytest.fixture
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "max_network_retries", 0)


def with_key(server: tuple[str, dict[str, str]], name: str) -> deepl.DeepLClient:
    url, keys = server
    return deepl.DeepLClient(keys.get(name, name), server_url=url)


def test_texts(client: deepl.DeepLClient) -> None:
    one = client.translate_text("A dog runs.", source_lang="EN", target_lang="FR")
    assert isinstance(one, deepl.TextResult)
    assert (one.detected_source_lang, one.billed_characters) == ("EN", 11)
    assert "chien" in one.text and str(one) == one.text
    texts = (text for text in ["A dog runs.", "A cat.", ""])
    many = client.translate_text(texts, source_lang="en", target_lang="fr")
    assert isinstance(many, list) and many[0].text == one.text
    assert [each.billed_characters for each in many] == [11, 6, 0]


def test_languages_are_identified_text_by_text(client: deepl.DeepLClient) -> None:
    texts = ["The dog runs through the garden.", "Der Hund läuft durch den Garten."]
    found = client.translate_text(texts, target_lang="FR")
    assert isinstance(found, list)
    assert [each.detected_source_lang for each in found] == ["EN", "DE"]
    assert all(each.text for each in found)


@pytest.mark.parametrize("model_type", list(deepl.ModelType))
def test_types_of_models(client: deepl.DeepLClient, model_type: deepl.ModelType) -> None:
    found = client.translate_text("A dog.", target_lang="FR", model_type=model_type)
    assert isinstance(found, deepl.TextResult) and found.model_type_used


def test_tags(client: deepl.DeepLClient) -> None:
    text = (
        "<document><title>A dog</title><raw>It stays.</raw><par>A <b>cat</b> runs.</par></document>"
    )
    found = client.translate_text(
        text,
        source_lang="EN",
        target_lang="FR",
        tag_handling="xml",
        outline_detection=False,
        splitting_tags=["title", "par"],
        non_splitting_tags="b",
        ignore_tags=["raw"],
    )
    assert isinstance(found, deepl.TextResult)
    assert "<raw>It stays.</raw>" in found.text
    assert re.search(r"<title>.*chien.*</title>", found.text)
    html = '<h1>A dog</h1><p translate="no">A dog.</p>'
    found = client.translate_text(html, source_lang="EN", target_lang="FR", tag_handling="html")
    assert isinstance(found, deepl.TextResult)
    assert '<p translate="no">A dog.</p>' in found.text and "chien" in found.text


def test_options(client: deepl.DeepLClient) -> None:
    for splitting in deepl.SplitSentences:
        client.translate_text("A dog.\nIt runs.", target_lang="FR", split_sentences=splitting)
    kept = client.translate_text("a dog", target_lang="FR", preserve_formatting=True)
    assert isinstance(kept, deepl.TextResult) and kept.text[0].islower() and kept.text[-1] != "."
    client.translate_text("A dog.", target_lang="FR", context="about animals")
    for formality in ("default", "prefer_less", deepl.Formality.PREFER_MORE):
        client.translate_text("A dog.", target_lang="FR", formality=formality)
    extra = {"target_lang": "DE", "show_billed_characters": False}
    client.translate_text("A dog.", target_lang="FR", extra_body_parameters=extra)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_lang": "XX"}, "target_lang.*not supported"),
        ({"source_lang": "XX", "target_lang": "FR"}, "source_lang.*not supported"),
        ({"target_lang": "FR", "formality": "more"}, "Target language.*formality"),
        ({"target_lang": "FR", "formality": "invalid"}, "formality"),
        ({"target_lang": "FR", "split_sentences": "invalid"}, "split_sentences"),
        ({"target_lang": "FR", "custom_instructions": ["be kind"]}, "custom_instructions"),
        ({"target_lang": "FR", "style_rule": "a"}, "style_id"),
        ({"target_lang": "FR", "extra_body_parameters": {"debug": "1"}}, "debug"),
    ],
)
def test_what_is_refused(
    client: deepl.DeepLClient, options: dict[str, object], message: str
) -> None:
    with pytest.raises(deepl.DeepLException, match=message):
        client.translate_text("A dog.", **options)  # type: ignore[arg-type]


def test_what_there_is(client: deepl.DeepLClient) -> None:
    sources, targets = client.get_source_languages(), client.get_target_languages()
    assert {str(each): each.name for each in sources} == {"DE": "German", "EN": "English"}
    assert {each.supports_formality for each in sources} == {None}
    assert {str(each) for each in targets} == {"DE", "EN-GB", "EN-US", "FR"}
    assert {each.supports_formality for each in targets} == {False}
    pairs = {(each.source_lang, each.target_lang) for each in client.get_glossary_languages()}
    assert {("en", "fr"), ("en", "de"), ("de", "en")} <= pairs


def test_mixed_case_and_variants(client: deepl.DeepLClient) -> None:
    for target in ("en-us", "EN-gb"):
        found = client.translate_text("Hund", source_lang="dE", target_lang=target)
        assert isinstance(found, deepl.TextResult) and found.detected_source_lang == "DE"


def test_keys(server: tuple[str, dict[str, str]]) -> None:
    stranger = with_key(server, "invalid")
    for ask in (stranger.get_usage, stranger.list_glossaries, stranger.get_source_languages):
        with pytest.raises(deepl.AuthorizationException, match="Authorization failure"):
            ask()
    with pytest.raises(deepl.AuthorizationException):
        stranger.translate_text("A dog.", target_lang="FR")
    stranger.close()


def test_usage_and_quota(server: tuple[str, dict[str, str]]) -> None:
    poor = with_key(server, "poor")
    assert "Characters: 0 of 20" in str(poor.get_usage())
    poor.translate_text("A dog runs.", target_lang="FR")
    with pytest.raises(deepl.DeepLException):
        poor.translate_text("A dog.", target_lang="XX")
    assert poor.get_usage().character.count == 11
    poor.translate_text("A big cat", target_lang="FR")
    usage = poor.get_usage()
    assert usage.character.limit_reached and usage.any_limit_reached
    with pytest.raises(deepl.QuotaExceededException, match="20 characters a month"):
        poor.translate_text("A", target_lang="FR")
    poor.close()


def test_too_many_requests_are_sent_again(server: tuple[str, dict[str, str]]) -> None:
    slow = with_key(server, "slow")
    started = time.monotonic()
    for _ in range(3):  # two of them come to one replica, which lets one in at a time
        slow.translate_text("A dog.", source_lang="EN", target_lang="FR")
    assert time.monotonic() - started > 1
    slow.close()


def test_too_many_requests_are_told(server: tuple[str, dict[str, str]], no_retries: None) -> None:
    slow = with_key(server, "slow")
    with pytest.raises(deepl.TooManyRequestsException):
        for _ in range(20):
            slow.translate_text("A dog.", source_lang="EN", target_lang="FR")
    slow.close()


def test_glossaries(client: deepl.DeepLClient) -> None:
    entries = {
        "Apple": "Apfel",
        "A%=&": "B&=%",
        "\u0394\u3041": "\u6df1",
        "\U0001faa8": "\U0001fab5",
    }
    made = client.create_glossary("fruit", "EN", "DE", entries)
    assert (made.name, made.source_lang, made.target_lang) == ("fruit", "EN", "DE")
    assert (made.entry_count, made.ready) == (len(entries), True)
    found = client.get_glossary(made.glossary_id)
    assert (found.creation_time, found.entry_count) == (made.creation_time, made.entry_count)
    assert client.get_glossary_entries(made) == entries
    assert made.glossary_id in [each.glossary_id for each in client.list_glossaries()]
    client.delete_glossary(made)
    for missing in (made.glossary_id, "invalid_glossary_id", NOBODYS):
        for ask in (client.get_glossary, client.get_glossary_entries, client.delete_glossary):
            with pytest.raises(deepl.GlossaryNotFoundException):
                ask(missing)


def test_glossaries_of_csv_and_large_ones(client: deepl.DeepLClient, tmp_path: Path) -> None:
    csv = 'sourceEntry1,targetEntry1,en,de\n"source""Entry","target,Entry",en,de'
    with_csv = client.create_glossary_from_csv("csv", "EN", "DE", csv)
    assert client.get_glossary_entries(with_csv) == {
        "sourceEntry1": "targetEntry1",
        'source"Entry': "target,Entry",
    }
    entries = {f"Source-{number}": f"Target-{number}" for number in range(10_000)}
    large = client.create_glossary("large", "EN", "DE", entries)
    assert client.get_glossary_entries(large) == entries
    with pytest.raises(deepl.DeepLException, match="not supported"):
        client.create_glossary("none", "EN", "XX", entries)
    for each in (with_csv, large):
        client.delete_glossary(each)


def test_glossaries_of_several_languages(client: deepl.DeepLClient) -> None:
    there = MultilingualGlossaryDictionaryEntries("EN", "DE", {"Hello": "Hallo"})
    back = MultilingualGlossaryDictionaryEntries("DE", "EN", {"Hallo": "Hello"})
    made = client.create_multilingual_glossary("both", [back, there])
    assert [each.entry_count for each in made.dictionaries] == [1, 1]

    more = MultilingualGlossaryDictionaryEntries("EN", "DE", {"Hello": "Guten Tag", "Tea": "Tee"})
    updated = client.update_multilingual_glossary_dictionary(made, more)
    assert {(each.source_lang, each.entry_count) for each in updated.dictionaries} == {
        ("EN", 2),
        ("DE", 1),
    }
    assert client.update_multilingual_glossary_name(made, "renamed").name == "renamed"
    replaced = client.replace_multilingual_glossary_dictionary(made, there)
    assert replaced.entry_count == 1
    [entries] = client.get_multilingual_glossary_entries(made, "EN", "DE").dictionaries
    assert str(entries.entries) == "Hello\tHallo"  # the client leaves it as it came
    assert "renamed" in [each.name for each in client.list_multilingual_glossaries()]
    assert made.glossary_id not in [each.glossary_id for each in client.list_glossaries()]

    client.delete_multilingual_glossary_dictionary(made, source_lang="EN", target_lang="DE")
    [left] = client.get_multilingual_glossary(made.glossary_id).dictionaries
    assert (left.source_lang, left.target_lang) == ("DE", "EN")
    client.delete_multilingual_glossary(made)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_multilingual_glossary(made.glossary_id)


def test_texts_with_a_glossary(client: deepl.DeepLClient) -> None:
    text = "The artist was awarded a prize."
    made = client.create_glossary("art", "EN", "FR", {"artist": "peintre", "prize": "gain"})
    found = client.translate_text(text, source_lang="EN", target_lang="FR", glossary=made)
    assert isinstance(found, deepl.TextResult)
    assert "peintre" in found.text or found.text.startswith("Peintre")  # as a beginning is written
    assert "gain" in found.text
    both = client.translate_text_with_glossary(["A prize.", "A dog."], made)
    assert isinstance(both, list) and "gain" in both[0].text

    with pytest.raises(deepl.DeepLException, match="no dictionary from en to de"):
        client.translate_text(text, source_lang="EN", target_lang="DE", glossary=made.glossary_id)
    client.delete_glossary(made)
