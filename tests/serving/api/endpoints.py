"""The endpoints of all protocols that read a body of fields."""

from serving.api import score
from serving.api.deepl import routes as deepl
from serving.api.libretranslate import routes as libretranslate
from serving.api.openai import routes as openai

ENDPOINTS = (
    *libretranslate.ENDPOINTS,
    *openai.ENDPOINTS,
    *score.ENDPOINTS,
    *deepl.ENDPOINTS,
)
