"""Translation of a language into itself, or into another region's form of it: the text is returned.

Whoever translates whatever comes in sends such texts, and LibreTranslate and DeepL return them.
"""

from serving.bundle.manifest import Task
from serving.pipelines.cards import ModelCard
from serving.pipelines.translation.job import (
    AlignedWords,
    Rendering,
    Translation,
    TranslationDelta,
    TranslationJob,
    TranslationStream,
)
from serving.requests.request import FinishReason
from serving.text.alignment import Link

_NAME = "same-language"


class SameLanguageTranslator:
    """Returns texts as they are. It has the interface of a `Translator`, and runs no model.

    name: of the model that the client asked for, if any.
    """

    def __init__(self, source: str, target: str, name: str | None = None) -> None:
        self.card = ModelCard(
            name=name or _NAME,
            task=Task.TRANSLATE,
            source_languages=(source,),
            target_languages=(target,),
            max_target_tokens=0,
            architecture=_NAME,
            num_attention_heads=0,
        )

    async def run(self, job: TranslationJob) -> Translation:
        return Translation(tuple((_rendering(text, job),) for text in job.texts), 0, 0)

    async def stream(self, job: TranslationJob) -> TranslationStream:
        for number, text in enumerate(job.texts):
            yield TranslationDelta(number, 0, text, FinishReason.STOP)
        yield await self.run(job)


def _rendering(text: str, job: TranslationJob) -> Rendering:
    return Rendering(text, alignment=_identity(text) if job.returns_alignments else None)


def _identity(text: str) -> AlignedWords:
    """Align each word with itself."""
    words = tuple(text.split())
    return AlignedWords(words, words, tuple(Link(number, number) for number in range(len(words))))
