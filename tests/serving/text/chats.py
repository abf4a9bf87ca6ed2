"""Chats for tests, and what renders them: a template and a tokenizer with its special tokens."""

import tokenizers

from serving.text.chat_template import ChatTemplate
from serving.text.tokenizer import Tokenizer
from tests.serving.text.tokenizers_for_tests import byte_level_bpe

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|eot_id|>")
BOS, EOS = 1, 2

ASKED = ({"role": "user", "content": " What is 2 & 2?\n"},)
TOLD = (
    {"role": "system", "content": "Answer «briefly». "},
    {"role": "user", "content": "<b>é</b> \\n"},
    {"role": "assistant", "content": "<think>\nHm.\n</think>\n\n\nYes. "},
    {"role": "user", "content": ""},
)


def chat_tokenizer() -> tokenizers.Tokenizer:
    tokenizer = byte_level_bpe()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def template_of(source: str, tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(source, tokenizer, {"bos_token": BOS, "eos_token": EOS, "unk_token": None})
