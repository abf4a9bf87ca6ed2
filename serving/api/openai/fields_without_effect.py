"""Fields of OpenAI's API that change nothing here, whatever their values."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class FieldsWithoutEffect(BaseModel):
    """The fields of OpenAI's API that concern accounts, storage, billing and caches.

    Their values are not checked: OpenAI adds to them, and clients of vLLM, which ignores them, send
    what they like.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    metadata: Any = None
    """Notes about the request, which OpenAI stores. Without effect here."""
    prediction: Any = None
    """What the answer may look like, to make it faster. Without effect here."""
    prompt_cache_key: Any = None
    """Groups requests for OpenAI's cache of prompts. Without effect here."""
    prompt_cache_options: Any = None
    """Options of OpenAI's cache of prompts. Without effect here."""
    prompt_cache_retention: Any = None
    """How long OpenAI's cache keeps the prompt. Without effect here."""
    safety_identifier: Any = None
    """Names the person who asks, for OpenAI. Without effect here."""
    service_tier: Any = None
    """The price and speed at OpenAI. Without effect here."""
    store: Any = None
    """Whether OpenAI keeps the answer. Without effect here, where nothing is kept."""
    user: Any = None
    """Names the person who asks, for OpenAI. Without effect here."""
