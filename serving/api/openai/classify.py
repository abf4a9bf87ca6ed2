"""Labels of texts and of their parts, vLLM's `/classify`; and words in the place of masks, as the
fill-mask pipeline of `transformers` gives them.
"""

import time
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.bodies import READS_JSON
from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.services import Services
from serving.api.openai.encoders import (
    EncoderInput,
    EncodingBody,
    check_inputs,
    describe_usage,
    field_names,
    list_inputs,
)
from serving.api.openai.protocol import AT_THE_ROOT, PROTOCOL, Usage
from serving.bundle.manifest import Task
from serving.pipelines.catalog import Model
from serving.pipelines.jobs import EncodeJob, Encodings, Entity, MaskedWord
from serving.requests.parameters import TokenIds


class Class(TypedDict):
    """The likeliest label of a text, and the scores of all labels in the order of `/v1/models`."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class LabelledParts(TypedDict):
    """The parts of a text that have a label other than O, from a model that labels tokens."""

    index: int
    entities: list[Entity]


class Classes(TypedDict):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Class] | list[LabelledParts]
    usage: Usage


class FilledText(TypedDict):
    """masks: for each mask of the text, in order, its likeliest words."""

    index: int
    masks: list[list[MaskedWord]]


class FilledTexts(TypedDict):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[FilledText]
    usage: Usage


class ClassifyBody(EncodingBody):
    """The body. input: texts, or token ids as they are."""

    input: EncoderInput

    @property
    def inputs(self) -> tuple[str | TokenIds, ...]:
        return list_inputs(self.input)

    def check(self, max_characters: int) -> None:
        check_inputs("input", self.inputs, max_characters)


async def _classifier(services: Services, body: ClassifyBody) -> Model:
    return await services.catalog.get_model(body.model, Task.CLASSIFY, Task.CLASSIFY_TOKENS)


async def _answer_classes(call: Call[ClassifyBody, Model]) -> JSONResponse:
    encodings, card = await call.model.run(call.job), call.model.card
    if card.task is Task.CLASSIFY_TOKENS:
        parts = (map(asdict, entity) for entity in encodings.entities)
        return _answer_items(call, encodings, [{"entities": [*entity]} for entity in parts])
    assert card.encoder is not None
    labels = card.encoder.labels
    data: list[dict[str, Any]] = [
        {
            "label": labels[int(scores.argmax())],
            "probs": scores.tolist(),
            "num_classes": len(labels),
        }
        for scores in encodings.values
    ]
    return _answer_items(call, encodings, data)


def _answer_items(
    call: Call[Any, Model], encodings: Encodings, data: list[dict[str, Any]]
) -> JSONResponse:
    head = {"id": call.job.request_id, "object": "list", "created": int(time.time())}
    used = {**describe_usage(encodings.num_tokens_in_all), "completion_tokens": 0}
    numbered = [{"index": index, **item} for index, item in enumerate(data)]
    return JSONResponse({**head, "model": call.model.card.name, "data": numbered, "usage": used})


class FillMaskBody(ClassifyBody):
    """The body. input: texts that hold the model's mask token, or token ids as they are. top_k:
    number of words for each mask.
    """

    top_k: Annotated[int, Field(ge=1)] = 5

    def job(self, request_id: str) -> EncodeJob:
        return replace(super().job(request_id), top_k=self.top_k)


async def _mask_filler(services: Services, body: FillMaskBody) -> Model:
    return await services.catalog.get_model(body.model, Task.FILL_MASK)


async def _answer_masks(call: Call[FillMaskBody, Model]) -> JSONResponse:
    encodings = await call.model.run(call.job)
    data = [
        {"masks": [[asdict(word) for word in words] for words in masks]}
        for masks in encodings.masked_words
    ]
    return _answer_items(call, encodings, data)


CLASSIFY = Endpoint(
    protocol=replace(PROTOCOL, field_names=field_names("input")),
    path="/classify",
    name="classify",
    description=(
        "Return the likeliest label of one text or of several, and all probabilities; of a model"
        " that labels tokens, the parts of each text that have a label."
        " As at `/classify`."
    ),
    body=ClassifyBody,
    reader=READS_JSON,
    find_model=_classifier,
    answer=_answer_classes,
    answer_type=Classes,
    example={"model": "sentiment", "input": ["A wonderful film.", "I left before the end."]},
    id_prefix="classify-",
)
CLASSIFY_AT_THE_ROOT = replace(
    CLASSIFY, protocol=replace(AT_THE_ROOT, field_names=field_names("input"))
)
FILL_MASK = Endpoint(
    protocol=replace(PROTOCOL, field_names=field_names("input")),
    path="/fill-mask",
    name="fill_mask",
    description="Return the likeliest words in the place of each mask of one text or of several.",
    body=FillMaskBody,
    reader=READS_JSON,
    find_model=_mask_filler,
    answer=_answer_masks,
    answer_type=FilledTexts,
    example={"model": "bert", "input": "Paris is the [MASK] of France.", "top_k": 3},
    id_prefix="fill-",
)
