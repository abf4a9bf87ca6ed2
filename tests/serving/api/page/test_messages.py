"""The messages of the page: the same in all languages, and all that it shows is among them."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from serving.api import application
from tests.serving.api.page.browser import TABS, Page, needs_browser

FOLDER = Path(application.__file__).parent / "page"
CATALOGUES = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((FOLDER / "messages").glob("*.json"))
}
ENGLISH = CATALOGUES["en"]
SCRIPTS = sorted(FOLDER.rglob("*.js"))
KEY = re.compile(
    r'"((?:page|common|server|translate|attention|documents|write|compare|picture|'
    r'transcribe|models|load)\.(?!png)[a-z.-]+)"'
)
# Keys that are put together, of a fixed beginning and end.
COMPOSED = re.compile(r"formatMessage\(`([a-z.-]*)\$\{\w+\}([a-z.-]*)`")
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`')
COMMENT = re.compile(r"(?<![:\"'`])//.*")
SENTENCE = re.compile(r"(?<![a-z])[A-Z][a-z]+|[a-z]{2,} [a-z]{2,}")
# Names of keys, events, headers, protocols and programs' words, and languages by their own names.
NOT_SHOWN = {
    *("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "Home", "End", "Escape", "Enter"),
    *("Files", "Bearer", "DeepL-Auth-Key", "Content-Type", "AbortError", "DOMContentLoaded"),
    *("CompletionBody", "ChatBody", "Without effect", "True", "False", "None", "+Inf", "Infinity"),
    *("English", "Deutsch", "Español", "Français", "Português", "15px system-ui, sans-serif"),
}
# Programs in curl and Python, texts to translate, and commands.
PROGRAMS = ("snippets.js", "examples.js", "missing.js")
REGULAR_EXPRESSION = re.compile(r"(?<=[(=,:])\s*/(?:[^/\\\n]|\\.)+/[a-z]*")
SELECTORS = re.compile(
    r"(className: |class: |querySelectorAll\(|matchMedia\(|linear-gradient\()[\"`][^\"`]*[\"`]"
)


def placeholders(message: Any) -> list[str]:
    forms = [message] if isinstance(message, str) else list(message.values())
    return sorted({name for form in forms for name in re.findall(r"\{(\w+)\}", form)})


@pytest.mark.parametrize("language", CATALOGUES)
def test_all_languages_have_the_same_messages(language: str) -> None:
    catalogue = CATALOGUES[language]

    assert list(catalogue) == list(ENGLISH)
    for key, message in catalogue.items():
        assert placeholders(message) == placeholders(ENGLISH[key]), key
        assert isinstance(message, str) or message.keys() == ENGLISH[key].keys(), key
        assert message, key


def test_forms_are_of_numbers_or_of_pointers() -> None:
    for key, message in ENGLISH.items():
        if isinstance(message, str):
            continue
        assert message.keys() in ({"one", "other"}, {"fine", "coarse"}), key
        assert ("count" in placeholders(message)) == ("other" in message), key


@pytest.mark.parametrize("language", sorted(CATALOGUES.keys() - {"en"}))
def test_other_languages_are_not_english(language: str) -> None:
    longer = {
        key: message
        for key, message in ENGLISH.items()
        if len(message) > 30 and isinstance(message, str)
    }
    same = [key for key, message in longer.items() if CATALOGUES[language][key] == message]
    assert [key for key in same if "example" not in key and "placeholder" not in key] == []


def test_the_page_names_the_messages_that_there_are() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (*SCRIPTS, FOLDER / "index.html")]
    named = {key for source in sources for key in KEY.findall(source)}
    composed = {parts for source in sources for parts in COMPOSED.findall(source)}
    others = set(ENGLISH) - named
    assert named <= set(ENGLISH)
    assert {
        key for key in others if not any(key.startswith(a) and key.endswith(b) for a, b in composed)
    } == set()


class _VisibleTexts(HTMLParser):
    """Collects the texts of a page that no message is named for."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._untranslated: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if self._untranslated or attributes.get("translate") == "no":
            self._untranslated.append(tag)
            return
        for name in ("title", "placeholder", "aria-label", "data-empty", "data-label"):
            self.texts += [attributes[name] or ""] if name in attributes else []

    def handle_endtag(self, tag: str) -> None:
        if tag in self._untranslated:
            while self._untranslated.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self._untranslated and re.search(r"[A-Za-z]{2}", data):
            self.texts.append(data.strip())


def test_the_html_has_no_text_of_its_own() -> None:
    parser = _VisibleTexts()
    parser.feed((FOLDER / "index.html").read_text(encoding="utf-8"))
    assert parser.texts == []
    assert 'content: "' not in (FOLDER / "style.css").read_text(encoding="utf-8").replace(
        'content: ""', ""
    )


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_have_no_text_of_their_own(path: Path) -> None:
    source = COMMENT.sub("", path.read_text(encoding="utf-8"))
    source = SELECTORS.sub("", REGULAR_EXPRESSION.sub("", source))
    literals = [literal[1:-1] for literal in LITERAL.findall(source)]
    shown = [re.sub(r"\$\{[^}]*\}", "", literal) for literal in literals]
    suspects = [text for text in shown if SENTENCE.search(text) and text not in NOT_SHOWN]
    assert path.name in PROGRAMS or suspects == []


@needs_browser
@pytest.mark.full
@pytest.mark.parametrize("language", CATALOGUES)
def test_the_page_is_shown_in_a_chosen_language(page: Page, server_url: str, language: str) -> None:
    messages = CATALOGUES[language]
    page.choose("language", language)
    page.until(lambda: page.run("return document.documentElement.lang") == language)
    page.until(lambda: page.at("tab-translate").text == messages["page.tab.translate"])
    page.open(server_url)  # it is remembered
    assert page.at("tab-models").text == messages["page.tab.models"]
    with page.looking_like("light", width=390):
        for name in TABS:
            page.tab(name)
            assert page.run("return document.documentElement.scrollWidth") <= 390, name
    page.run("localStorage.removeItem('attendant-language')")
