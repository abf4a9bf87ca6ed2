"""Holds the body of `POST /score`."""

from pydantic import ConfigDict, Field

from serving.api.http.reading.bodies import RequestBody
from serving.api.http.reading.looks import LookFields, looks_of
from serving.errors import RequestError
from serving.pipelines.decoding import Decoding
from serving.pipelines.translation.job import ScoreJob
from serving.text.plain_text import check_texts

# From what the engine and the pipelines call fields to what clients of this protocol do.
FIELD_NAMES = {
    "forced_ids": "translations",
    "looks": "return_attention",
    "source_ids": "q",
    "text": "q",
}


class ScoreBody(RequestBody):
    """Holds sources and translations. q and translations are lists of the same length; or q is one
    text, which all translations are of. Each is one sentence, or a few: texts are not split.
    source and target: languages. return_attention, attention_heads: report of each pair what
    `POST /translate` reports of sentences.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    q: str | list[str]
    translations: str | list[str]
    source: str
    target: str
    model: str | None = None
    return_attention: bool | list[str | LookFields] = False
    attention_heads: list[int] = Field(default_factory=list)
    priority: int = 0
    timeout_seconds: float | None = None

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        targets = self.translations if isinstance(self.translations, list) else [self.translations]
        sources = self.q if isinstance(self.q, list) else [self.q] * len(targets)
        if len(sources) != len(targets):
            message = f"must be as many as the texts of q, {len(sources)}"
            raise RequestError("translations", f"{len(targets)} texts", message)
        return tuple(zip(sources, targets, strict=True))

    @property
    def num_characters(self) -> int:
        return sum(len(source) + len(target) for source, target in self.pairs)

    def check(self, max_characters: int) -> None:
        if self.attention_heads and self.return_attention is not True:
            raise RequestError("attention_heads", self.attention_heads, "needs return_attention")
        check_texts("q", {source for source, _ in self.pairs}, max_characters)
        check_texts("translations", [target for _, target in self.pairs], max_characters)

    def job(self, request_id: str) -> ScoreJob:
        return ScoreJob(
            request_id,
            self.pairs,
            self.source,
            self.target,
            Decoding(priority=self.priority, timeout_seconds=self.timeout_seconds),
            self.return_attention is True,
            tuple(self.attention_heads),
            looks_of(self.return_attention),
        )
