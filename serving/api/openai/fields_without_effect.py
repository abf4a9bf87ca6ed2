"""Fields of OpenAI's API, and of servers that speak it, that change nothing here: some whatever
their values, others with some values only.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict

# Values of other servers' fields with which they do what is done here anyway.
NO_OP_VALUES: dict[str, tuple[Any, ...]] = {
    # vLLM
    "detokenize": (True,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
    "vllm_xargs": ({},),
    # SGLang
    "no_stop_trim": (False,),
    "separate_reasoning": (True,),
    "stream_reasoning": (True,),
    # llama.cpp, LM Studio and Ollama
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "grammar": ("",),
    "image_data": ([],),
    "lora": ([],),
    "mirostat": (0,),
    "n_probs": (0,),
    "options": ({},),
    "parse_tool_calls": (True,),
    "reasoning_format": ("auto", "deepseek"),
    "repeat_penalty": (1,),
    "response_fields": ([],),
    "return_progress": (False,),
    "return_tokens": (False,),
    "tfs_z": (1,),
    "timings_per_token": (False,),
    "top_n_sigma": (-1,),
    "xtc_probability": (0,),
    # OpenRouter, Mistral and Azure
    "data_sources": ([],),
    "models": ([],),
    "plugins": ([],),
    "provider": ({},),
    "safe_prompt": (False,),
    "transforms": ([],),
}


class FieldsWithoutEffect(BaseModel):
    """The fields that concern accounts, storage, billing, caches, and where an answer is computed.

    Their values are not checked: OpenAI adds to them, and clients of vLLM, which ignores them, send
    what they like.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    cache_prompt: Any = None
    """Whether llama.cpp keeps the prompt in its cache. Without effect here."""
    guided_decoding_backend: Any = None
    """How vLLM follows a structure. Without effect here."""
    id_slot: Any = None
    """Where llama.cpp computes the answer. Without effect here."""
    keep_alive: Any = None
    """How long Ollama keeps the model loaded. Without effect here."""
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
    spaces_between_special_tokens: Any = None
    """Whether vLLM writes spaces between special tokens. Without effect here, where answers have no
    such tokens."""
    store: Any = None
    """Whether OpenAI keeps the answer. Without effect here, where nothing is kept."""
    ttl: Any = None
    """How long LM Studio keeps the model loaded. Without effect here."""
    user: Any = None
    """Names the person who asks, for OpenAI. Without effect here."""
    user_security_context: Any = None
    """Names the person who asks, for Azure. Without effect here."""
