"""Seeds of one translation job with a real model that draws its words."""

from pathlib import Path

from serving.bundle.manifest import Precision
from serving.engine.config import EngineConfig
from serving.pipelines.decoding import Decoding
from serving.pipelines.loading import open_model
from serving.pipelines.routing import find_translator
from serving.pipelines.translation.job import TranslationJob
from serving.requests.parameters import SamplingParams
from tests.tiny import tiny_bundle


async def test_a_list_of_texts_gives_what_its_texts_give_alone(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32)
    decoding = Decoding(SamplingParams(temperature=1.0, seed=3), max_new_tokens=8)
    texts = ("A dog.\nA dog.\nA dog.", "A cat.\nA dog.", "A dog.")

    async with open_model(bundle, EngineConfig(slots=4)) as catalog:
        [card] = catalog.local_cards
        languages = card.source_languages[0], card.target_languages[0]
        model = await find_translator(catalog, card.name, *languages)

        async def translate(*texts: str) -> tuple[str, ...]:
            job = TranslationJob("job", texts, *languages, decoding)
            return (await model.run(job)).texts

        together = await translate(*texts)
        alone = [text for source in texts for text in await translate(source)]

    assert list(together) == alone
    assert len(set(together[0].split("\n"))) > 1
    assert together[0].startswith(together[2])
