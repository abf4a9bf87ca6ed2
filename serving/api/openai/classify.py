"""Serves vLLM's `POST /classify`: which of a model's labels a text has, and how likely each is."""

import time
from dataclasses import replace

from fastapi.responses import JSONResponse

from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.fields import READS_JSON
from serving.api.http.services import Services
from serving.api.openai.encoder_bodies import (
    Classes,
    EncodingBody,
    Given,
    check_inputs,
    field_names,
    listed,
    usage,
)
from serving.api.openai.protocol import AT_THE_ROOT, PROTOCOL
from serving.bundle.manifest import Task
from serving.parameters import TokenIds
from serving.pipelines.catalog import Model


class ClassifyBody(EncodingBody):
    """The body. input: texts, or token ids as they are."""

    input: Given

    @property
    def inputs(self) -> tuple[str | TokenIds, ...]:
        return listed(self.input)

    def check(self, max_characters: int) -> None:
        check_inputs("input", self.inputs, max_characters)


async def _classifier(services: Services, body: ClassifyBody) -> Model:
    return await services.catalog.named(body.model, Task.CLASSIFY)


async def _answer(call: Call[ClassifyBody, Model]) -> JSONResponse:
    found, card = await call.model.run(call.job), call.model.card
    assert card.encoder is not None
    labels = card.encoder.labels
    data = [
        {
            "index": index,
            "label": labels[int(scores.argmax())],
            "probs": scores.tolist(),
            "num_classes": len(labels),
        }
        for index, scores in enumerate(found.values)
    ]
    head = {"id": call.job.request_id, "object": "list", "created": int(time.time())}
    used = {**usage(found.num_tokens_in_all), "completion_tokens": 0}
    return JSONResponse({**head, "model": card.name, "data": data, "usage": used})


CLASSIFY = Endpoint(
    protocol=replace(PROTOCOL, field_names=field_names("input")),
    path="/classify",
    name="classify",
    description=(
        "Return the likeliest label of one text or of several, and all probabilities."
        " As at `/classify`."
    ),
    body=ClassifyBody,
    reader=READS_JSON,
    find_model=_classifier,
    answer=_answer,
    answer_type=Classes,
    example={"model": "sentiment", "input": ["A wonderful film.", "I left before the end."]},
    id_prefix="classify-",
)
CLASSIFY_AT_THE_ROOT = replace(
    CLASSIFY, protocol=replace(AT_THE_ROOT, field_names=field_names("input"))
)
