"""Serves what models answer that only encode, beneath `/v1` and where vLLM has it at the root."""

from fastapi import APIRouter

from serving.api.http.services import Services
from serving.api.openai.encoding.classes import CLASSIFY, CLASSIFY_AT_THE_ROOT
from serving.api.openai.encoding.embeddings import EMBEDDINGS
from serving.api.openai.encoding.ranking import RERANK, RERANK_AT_THE_ROOT, RERANK_V2, SCORE
from serving.api.openai.protocol import AT_THE_ROOT, PROTOCOL

_BENEATH = (EMBEDDINGS, CLASSIFY, RERANK, SCORE)
_AT_THE_ROOT = (CLASSIFY_AT_THE_ROOT, RERANK_AT_THE_ROOT, RERANK_V2)
ENDPOINTS = (*_BENEATH, *_AT_THE_ROOT)


def router(services: Services) -> APIRouter:
    routes, beneath = AT_THE_ROOT.router("OpenAI"), PROTOCOL.router("OpenAI")
    for endpoint in _BENEATH:
        endpoint.add_to(beneath, services)
    for other in _AT_THE_ROOT:
        other.add_to(routes, services)
    routes.include_router(beneath)
    return routes
