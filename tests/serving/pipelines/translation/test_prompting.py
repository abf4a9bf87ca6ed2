"""A language model translates by the prompt of its chat template."""

from dataclasses import replace
from typing import Any

import pytest

from serving.bundle.manifest import Task
from serving.bundle.validation import manifest_problems
from serving.errors import RequestError
from serving.pipelines.translation.job import GlossaryEntry, TranslationJob
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.requests.request import GenerationRequest
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import FakeEngine, manifest

TEMPLATE = (
    "{% if 'Welsh' in messages[0].content %}{{ raise_exception('no Welsh') }}{% endif %}"
    "{{ messages[0].content }}{{ eos_token }}ANSWER:"
)
CHAT: dict[str, Any] = {
    "chat_template": TEMPLATE,
    "translation_message": {
        "role": "user",
        "content": "{source_language} to {target_language} ({target_code}):\n{text}",
    },
    "source_languages": ("en", "pt-BR", "cy"),
    "target_languages": ("en", "pt-BR", "cy"),
}


def chat_translator(
    tokenizer: Tokenizer, max_target_tokens: int = 128
) -> tuple[TranslationPipeline, FakeEngine]:
    """Its translation of a text is the text in capitals."""

    def script(request: GenerationRequest) -> list[int]:
        text = tokenizer.decode(request.prompt_ids)
        assert text.endswith("ANSWER:")
        return tokenizer.encode(text.split("\n")[1].removesuffix("ANSWER:").upper())

    engine = FakeEngine(script)
    card = manifest(Task.GENERATE, max_target_tokens=max_target_tokens, **CHAT)
    return TranslationPipeline(card, TokenizerPair(tokenizer, tokenizer), engine), engine


def job(*texts: str, target: str = "pt-BR", **options: Any) -> TranslationJob:
    return TranslationJob("job", texts, "en", target, **options)


async def test_each_segment_has_a_prompt_and_no_source(tokenizer: Tokenizer) -> None:
    pipeline, engine = chat_translator(tokenizer)
    translation = await pipeline.run(job("One. A dog runs.", "Two"))
    assert translation.texts == ("ONE. A DOG RUNS.", "TWO")
    assert [request.source_ids for request in engine.requests] == [None] * 3
    assert all(request.is_whole for request in engine.requests)
    first = tokenizer.decode(engine.requests[0].prompt_ids)
    assert first == "English to Brazilian Portuguese (pt-BR):\nOne.ANSWER:"
    assert translation.num_source_tokens > 3 * len(first)
    assert pipeline.card.task is Task.TRANSLATE


async def test_a_prompt_and_its_translation_share_the_context(tokenizer: Tokenizer) -> None:
    pipeline, engine = chat_translator(tokenizer)
    translation = await pipeline.run(job("a bird and " * 20))
    assert translation.texts == ("A BIRD AND " * 20,)
    around = len("English to Brazilian Portuguese (pt-BR):\n</s>ANSWER:")
    assert len(engine.requests) > 5
    assert all(2.5 * len(r.prompt_ids) - 1.5 * around <= 128 for r in engine.requests)


async def test_terms_and_tags_are_put_without_attention(tokenizer: Tokenizer) -> None:
    pipeline, _ = chat_translator(tokenizer)
    glossary = (GlossaryEntry("dog", ("chien",)),)
    translation = await pipeline.run(job("a dog runs", glossary=glossary))
    assert "chien" in translation.texts[0].lower()
    tagged = await pipeline.run(job("a <b>dog</b> runs", markup=Markup(MarkupKind.XML)))
    assert tagged.texts[0].count("<b>") == tagged.texts[0].count("</b>") == 1


async def test_what_the_template_refuses_is_refused(tokenizer: Tokenizer) -> None:
    pipeline, _ = chat_translator(tokenizer)
    with pytest.raises(RequestError, match="target: the model's chat template: no Welsh"):
        await pipeline.run(job("a", target="cy"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"chat_template": None}, "translation_message: needs a chat_template"),
        ({"translation_message": {"content": "a"}}, "translation_message: must have {text} once"),
        ({"target_languages": ()}, "target_languages: must not be empty for task translate"),
        ({"task": Task.EMBED}, "translation_message: must not be there for task embed"),
    ],
)
def test_wrong_manifests(changes: dict[str, Any], problem: str) -> None:
    assert problem in list(manifest_problems(replace(manifest(Task.GENERATE, **CHAT), **changes)))
