"""Fields of OpenAI's API that are checked and change nothing here."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_MetadataKey = Annotated[str, Field(max_length=64)]
_MetadataValue = Annotated[str, Field(max_length=512)]


class PromptCacheOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    mode: Literal["implicit", "explicit"] | None = None
    ttl: str | None = None


class Prediction(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["content"]
    content: str | list[dict[str, Any]]


class FieldsWithoutEffect(BaseModel):
    """The fields of OpenAI's API that concern accounts, storage, billing and caches."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    metadata: Annotated[dict[_MetadataKey, _MetadataValue], Field(max_length=16)] | None = None
    """Notes about the request, which OpenAI stores. Without effect here."""
    prediction: Prediction | None = None
    """What the answer may look like, to make it faster. Without effect here."""
    prompt_cache_key: str | None = None
    """Groups requests for OpenAI's cache of prompts. Without effect here."""
    prompt_cache_options: PromptCacheOptions | None = None
    """Options of OpenAI's cache of prompts. Without effect here."""
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    """How long OpenAI's cache keeps the prompt. Without effect here."""
    safety_identifier: Annotated[str, Field(max_length=128)] | None = None
    """Names the person who asks, for OpenAI. Without effect here."""
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    """The price and speed at OpenAI. Without effect here."""
    store: bool | None = None
    """Whether OpenAI keeps the answer. Without effect here, where nothing is kept."""
    user: str | None = None
    """Names the person who asks, for OpenAI. Without effect here."""
