"""Greedy translations of texts with the plain torch loop."""

from tokenizers import Tokenizer
from torch import nn

from models.data.tokenizer import encode_all
from models.torch_loop import translate_all


def translate(module: nn.Module, tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    """One translation for each text, in order."""
    sources = encode_all(tokenizer, texts)
    rows = translate_all(module, sources, module.config.max_target_tokens - 1, batch_size=64)
    return tokenizer.decode_batch(rows)
