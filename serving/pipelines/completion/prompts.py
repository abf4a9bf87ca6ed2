"""Reads prompts, be they text, token ids or chats, as the token ids that a request begins with."""

from dataclasses import dataclass

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.parameters import TokenIds
from serving.text.chat.template import Chat, ChatTemplate
from serving.text.chat.tools import BEGIN, has_tools
from serving.text.plain_text import tokenizing
from serving.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """Holds a prompt's tokens.

    token_ids: without the bundle's own prefix.
    num_before: how many tokens the bundle puts in front of them.
    is_whole: the prefix is not put there: chats, which their template has written, and prompts
        that are given as ids, which mean what they say.
    ends_text: what comes next begins a text of its own.
    field: what the client calls it.
    """

    token_ids: TokenIds
    num_before: int = 0
    is_whole: bool = False
    ends_text: bool = False
    field: str = "prompt"

    @property
    def num_tokens(self) -> int:
        return self.num_before + len(self.token_ids)


class PromptReader:
    """Reads prompts for one bundle, without an engine."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        self._name = manifest.name
        self._num_prefix = len(manifest.tokens.prompt_prefix)
        self._vocab_size = manifest.vocab_size
        self._context = manifest.limits.max_target_tokens
        self._tokenizer = tokenizer
        self._chat = _chat_template(manifest, tokenizer)
        # What a special token writes is no text, so nothing could be read of it.
        is_text = BEGIN not in tokenizer.special_tokens.values()
        self._has_tools = is_text and has_tools(manifest.chat_template or "")

    def read(self, prompt: str | TokenIds | Chat) -> Prompt:
        """Return a prompt's tokens. A chat takes its time: its template runs in another process.

        Raises RequestError for what the model cannot read.
        """
        if isinstance(prompt, Chat):
            return self._chat_prompt(prompt)
        if isinstance(prompt, str):
            with tokenizing("prompt"):
                token_ids = tuple(self._tokenizer.encode(prompt))
            return Prompt(token_ids, self._num_prefix, ends_text=not prompt)
        return self._prompt_of_ids(prompt)

    def check_length(self, prompt: Prompt, max_new_tokens: int) -> None:
        """Raise RequestError if the prompt is empty, or leaves no room for so many tokens."""
        if prompt.num_tokens == 0:
            reason = "" if prompt.is_whole else ": this model has no start token"
            raise RequestError(prompt.field, "", f"must not be empty{reason}")
        room = self._context - prompt.num_tokens
        if room < min(max_new_tokens, 1):
            message = f"must leave room in the context of {self._context} tokens"
            raise RequestError(prompt.field, f"{prompt.num_tokens} tokens", message)
        if max_new_tokens > room:
            message = (
                f"{prompt.field} ({prompt.num_tokens} tokens) and completion must fit "
                f"the context of {self._context} tokens"
            )
            raise RequestError("max_tokens", max_new_tokens, message)

    def _chat_prompt(self, chat: Chat) -> Prompt:
        if self._chat is None:
            message = f"model {self._name} has no chat template; it completes prompts only"
            raise RequestError("messages", f"{len(chat.messages)} messages", message)
        if chat.tools and not self._has_tools:
            message = f"the chat template of model {self._name} shows no tools, or not in a form"
            raise RequestError("tools", f"{len(chat.tools)} tools", f"{message} known here")
        with tokenizing("messages"):
            token_ids = self._chat.prompt_ids(chat)
        return Prompt(token_ids, is_whole=True, ends_text=not chat.continues_last, field="messages")

    def _prompt_of_ids(self, token_ids: TokenIds) -> Prompt:
        for token_id in token_ids:
            if not 0 <= token_id < self._vocab_size:
                message = f"token ids must be between 0 and {self._vocab_size - 1}"
                raise RequestError("prompt", token_id, message)
        has_text = any(map(self._tokenizer.token_bytes, token_ids))
        return Prompt(token_ids, is_whole=True, ends_text=not has_text)


def _chat_template(manifest: Manifest, tokenizer: Tokenizer) -> ChatTemplate | None:
    if manifest.chat_template is None:
        return None
    tokens = manifest.tokens
    special_ids = {
        "bos_token": tokens.bos,
        "eos_token": tokens.eos,
        "pad_token": tokens.pad,
        "unk_token": tokens.unk,
    }
    return ChatTemplate(manifest.chat_template, tokenizer, special_ids)
