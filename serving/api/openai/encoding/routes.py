"""Serves what models answer that only encode, beneath `/v1` and where vLLM has it at the root."""

from fastapi import APIRouter

from serving.api.http.services import Services
from serving.api.openai.encoding.classes import CLASSIFY, CLASSIFY_AT_THE_ROOT
from serving.api.openai.encoding.embeddings import EMBEDDINGS
from serving.api.openai.encoding.ranking import RERANK, RERANK_AT_THE_ROOT, RERANK_V2, SCORE
from serving.api.openai.protocol import AT_THE_ROOT, PROTOCOL

_BENEATH = (EMBEDDINGS, CLASSIFY, RERANK, SCORE)
_AT_THE_ROOT = (CLASSIFY_AT_THE_ROOT, RERANK_AT_THE_ROOT, RERANK_V2)
ENDPOINTS = _BENEATH


def router(services: Services) -> APIRouter:
    """Make the routes; the document tells of those beneath `/v1`, the others are the same."""
    routes, beneath = APIRouter(), PROTOCOL.router("OpenAI")
    others = AT_THE_ROOT.router("OpenAI")
    for endpoint in _BENEATH:
        endpoint.add_to(beneath, services)
    for alias in _AT_THE_ROOT:
        alias.add_to(others, services)
    routes.include_router(beneath)
    routes.include_router(others, include_in_schema=False)
    return routes
