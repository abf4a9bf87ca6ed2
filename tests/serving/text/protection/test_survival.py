"""Property tests: whatever a model makes of the words, numbers, addresses, placeholders and signs
are in the answer exactly as often as in the text.
"""

import asyncio
import html
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import polib
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from serving.documents.formats.registry import read_document
from serving.documents.fragment import MARKUP
from serving.pipelines.catalog import Translator
from serving.pipelines.translation.job import TranslationJob
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World
from tests.serving.pipelines.fakes import byte_tokenizer
from tests.serving.text.protection.garbling import GarblingEngine, garbling_translator
from tests.serving.text.protection.random_texts import (
    WORDS,
    Made,
    check,
    made_texts,
)

FEW = pytest.param(20, id="few")
MANY = pytest.param(500, id="many", marks=pytest.mark.slow)
some_or_many = pytest.mark.parametrize("examples", [FEW, MANY])
seeds = st.integers(0, 2**16)


def holds(
    examples: int, property: Callable[..., None], *strategies: Any, shrinks: bool = True
) -> None:
    """Check a property on so many examples, in the short form always the same."""
    phases = [Phase.explicit, Phase.generate, *[Phase.shrink] * shrinks]
    chosen = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    chosen(given(st.tuples(*strategies))(lambda values: property(*values)))()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def translations(
    runner: asyncio.Runner, translator: Translator, texts: Sequence[str], **options: Any
) -> list[str]:
    source, target = translator.card.source_languages[0], translator.card.target_languages[0]
    job = TranslationJob("job", tuple(texts), source, target, protection=True, **options)
    return list(runner.run(translator.run(job)).texts)


# Ways to write a made text in a format, and to read what came of it.


def as_marked(generated: Made, seed: int) -> str:
    """HTML or XML with a word in a tag, if there is one that is part of nothing else."""
    words = html.escape(html.unescape(generated.text), quote=False).split(" ")
    places = [place for place, word in enumerate(words) if len(word) > 1 and word in WORDS]
    if places:
        place = places[seed % len(places)]
        words[place] = f"<b>{words[place]}</b>"
    return f"<p>{' '.join(words)}</p>"


def from_marked(answer: str) -> str:
    return html.unescape(re.sub(r"</?[bp]>", "", answer))


def srt(texts: Sequence[str]) -> str:
    cues = (
        f"{number}\n00:00:0{number},000 --> 00:00:0{number},900\n{text}\n"
        for number, text in enumerate(texts, 1)
    )
    return "\n".join(cues)


def from_srt(written: str) -> list[str]:
    return [cue.split("\n", 2)[2].strip("\n") for cue in written.strip("\n").split("\n\n")]


def po(texts: Sequence[str]) -> str:
    file = polib.POFile()
    file.metadata = {"Content-Type": "text/plain; charset=utf-8"}
    for number, text in enumerate(texts):
        file.append(polib.POEntry(msgid=text, msgstr="", msgctxt=str(number)))
    return str(file)


def from_po(written: str) -> list[str]:
    return [entry.msgstr or entry.msgid for entry in polib.pofile(written)]


def page(texts: Sequence[str]) -> str:
    paragraphs = (f"<p>{html.escape(html.unescape(text), quote=False)}</p>" for text in texts)
    return "<html><body>\n" + "\n".join(paragraphs) + "\n</body></html>"


def from_page(written: str) -> list[str]:
    return [from_marked(paragraph) for paragraph in re.findall(r"<p>.*?</p>", written, re.DOTALL)]


def paragraphs(texts: Sequence[str]) -> str:
    return "\n\n".join(texts) + "\n"


def from_paragraphs(written: str) -> list[str]:
    return written.removesuffix("\n").split("\n\n")


DOCUMENTS = {
    "txt": (paragraphs, from_paragraphs),
    "md": (paragraphs, from_paragraphs),
    "html": (page, from_page),
    "po": (po, from_po),
    "srt": (srt, from_srt),
}


def test_made_texts_survive_as_they_are() -> None:
    holds(200, lambda generated: check(generated, generated.text), made_texts())


@pytest.mark.parametrize("extension", DOCUMENTS)
def test_documents_survive_as_they_are(extension: str, tmp_path: Path) -> None:
    write, read = DOCUMENTS[extension]
    path, target = tmp_path / f"a.{extension}", tmp_path / f"b.{extension}"

    def survive(many: list[Made]) -> None:
        path.write_text(write([generated.text for generated in many]), encoding="utf-8")
        document = read_document(path, path.name)
        document.write(document.fragments, target, "fr")
        for generated, answer in zip(many, read(target.read_text(encoding="utf-8")), strict=True):
            check(generated, answer)

    holds(20, survive, st.lists(made_texts(breaks=(" ",)), min_size=1, max_size=3))


@some_or_many
@pytest.mark.parametrize("num_heads", [4, 0])
@pytest.mark.parametrize("changes_stand_ins", [False, True])
def test_texts_through_a_garbling_model(
    examples: int,
    num_heads: int,
    changes_stand_ins: bool,
    tokenizer: Tokenizer,
    runner: asyncio.Runner,
) -> None:
    def survives(generated: Made, seed: int) -> None:
        translator, _ = garbling_translator(
            tokenizer, seed, num_heads=num_heads, changes_stand_ins=changes_stand_ins
        )
        [answer] = translations(runner, translator, [generated.text])
        check(generated, answer)

    holds(examples, survives, made_texts(), seeds)


@some_or_many
@pytest.mark.parametrize("kind", MarkupKind)
def test_marked_texts_through_a_garbling_model(
    examples: int, kind: MarkupKind, tokenizer: Tokenizer, runner: asyncio.Runner
) -> None:
    def survives(generated: Made, seed: int) -> None:
        translator, _ = garbling_translator(tokenizer, seed)
        text = as_marked(generated, seed)
        [answer] = translations(runner, translator, [text], markup=Markup(kind))
        check(generated, from_marked(answer))
        assert Counter(re.findall("</?[bp]>", answer)) == Counter(re.findall("</?[bp]>", text))

    holds(examples, survives, made_texts(), seeds)


@some_or_many
@pytest.mark.parametrize("extension", DOCUMENTS)
def test_documents_through_a_garbling_model(
    examples: int, extension: str, tokenizer: Tokenizer, runner: asyncio.Runner, tmp_path: Path
) -> None:
    write, read = DOCUMENTS[extension]
    path, target = tmp_path / f"a.{extension}", tmp_path / f"b.{extension}"

    def survives(many: list[Made], seed: int) -> None:
        path.write_text(write([generated.text for generated in many]), encoding="utf-8")
        document = read_document(path, path.name)
        translator, _ = garbling_translator(tokenizer, seed)
        fragments = [*document.fragments]
        document.write(translations(runner, translator, fragments, markup=MARKUP), target, "fr")
        answers = read(target.read_text(encoding="utf-8"))
        for generated, answer in zip(many, answers, strict=True):
            check(generated, answer)

    holds(examples, survives, st.lists(made_texts(breaks=(" ",)), min_size=1, max_size=3), seeds)


@pytest.fixture(scope="module")
def garbling_world(
    tokenizer: Tokenizer, runner: asyncio.Runner
) -> Iterator[tuple[World, GarblingEngine]]:
    """The application with a model that garbles into Spanish."""
    translator, engine = garbling_translator(tokenizer, target="es")
    making = made_world(tokenizer, others=[translator])
    yield runner.run(making.__aenter__()), engine
    runner.run(making.__aexit__(None, None, None))


async def libretranslate(world: World, text: str, format: str) -> str:
    body = {"q": text, "source": "en", "target": "es", "format": format}
    answer = await world.client.post("/translate", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["translatedText"])


async def deepl(world: World, text: str, format: str) -> str:
    body = {"text": [text], "source_lang": "EN", "target_lang": "ES"}
    if format != "text":
        body["tag_handling"] = format
    answer = await world.client.post("/v2/translate", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["translations"][0]["text"])


@some_or_many
@pytest.mark.parametrize(
    ("ask", "format"),
    [
        (libretranslate, "text"),
        (libretranslate, "html"),
        (deepl, "text"),
        (deepl, "html"),
        (deepl, "xml"),
    ],
)
def test_protocols_through_a_garbling_model(
    examples: int,
    ask: Callable[[World, str, str], Coroutine[Any, Any, str]],
    format: str,
    garbling_world: tuple[World, GarblingEngine],
    runner: asyncio.Runner,
) -> None:
    world, engine = garbling_world

    def survives(generated: Made, seed: int) -> None:
        engine.seed = seed
        text = generated.text if format == "text" else as_marked(generated, seed)
        answer = runner.run(ask(world, text, format))
        check(generated, answer if format == "text" else from_marked(answer))

    holds(examples, survives, made_texts(), seeds)
