"""The token with which a model's chat template ends an answer, which ends a text of the model, too.

Llama 3's `<|eot_id|>` and Gemma's `<end_of_turn>` are named by their templates, and not by all of
their other files.
"""

from dataclasses import replace
from typing import Any

from tokenizers import Tokenizer

from export.readers.common.checkpoint_files import add_notes
from models.checkpoint import TOKENIZER_FILE, Checkpoint
from models.configs.base import LanguageModelConfig
from serving.text.chat_template import TemplateProcess

ANSWER = "ANSWER THAT ENDS HERE"
OF_HARMONY = ("<|end|>", "<|return|>")  # the first ends a channel, the second an answer
NO_TOKEN = "the chat template ends an answer with {end!r}, which is no token, and ends no text"


def add_end_of_answer(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with the end of its template's answers among its stop tokens, or with a
    note if that is no token.
    """
    conventions, config = checkpoint.conventions, checkpoint.config
    if conventions.chat_template is None or not isinstance(config, LanguageModelConfig):
        return checkpoint
    tokenizer = Tokenizer.from_str(checkpoint.files[TOKENIZER_FILE].decode())
    ids = {"bos_token": config.bos_id, "eos_token": config.eos_id, "pad_token": config.pad_id}
    names = {name: tokenizer.id_to_token(token_id) or "" for name, token_id in ids.items()}
    end = _text_after_answer(conventions.chat_template, names)
    if end is None:
        return checkpoint
    added = {token.content: i for i, token in tokenizer.get_added_tokens_decoder().items()}
    end_token = max(
        (name for name in added if name and end.startswith(name)), key=len, default=None
    )
    first, last = OF_HARMONY
    if end_token == first and last in added:
        end_token = last
    token_id = tokenizer.token_to_id(end.split()[0]) if end_token is None else added[end_token]
    if token_id is None or token_id >= config.vocab_size:
        return add_notes(checkpoint, [NO_TOKEN.format(end=end.split()[0])])
    stop = tuple(dict.fromkeys((*conventions.stop, token_id)))
    return replace(checkpoint, conventions=replace(conventions, stop=stop))


def _text_after_answer(template: str, names: dict[str, str]) -> str | None:
    """Return what the template writes after an answer, without space around it; None if that is
    nothing, or the template takes no plain chat.
    """
    renderer = TemplateProcess()
    for is_in_parts in (False, True):
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}] if is_in_parts else text}
            for role, text in (("user", "A question"), ("assistant", ANSWER))
        ]
        variables: dict[str, Any] = {"messages": messages, "tools": None, "documents": None}
        variables |= names | {"add_generation_prompt": False}
        _, mark, after = renderer.render(template, variables).get("text", "").rpartition(ANSWER)
        if mark:
            return after.strip() or None
    return None
