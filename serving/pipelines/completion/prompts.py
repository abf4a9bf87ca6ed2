"""Read the prompts of completion jobs: texts, token ids, and chats by the model's template."""

from dataclasses import dataclass

from serving.bundle.manifest import Manifest
from serving.errors import RequestError, TooManyTokens
from serving.pipelines.completion.images import read_picture
from serving.requests.parameters import TokenIds
from serving.requests.request import Picture
from serving.text.chat_template import Chat, ChatTemplate
from serving.text.checks import tokenizing
from serving.text.tokenizer import Tokenizer
from serving.text.tool_calls import TOOL_CALL_BEGIN, has_tools


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens of a prompt.

    token_ids: without the prefix of the bundle.
    num_before: number of tokens that the bundle adds in front.
    is_whole: True if the bundle adds no prefix: for chats, whose template has written it, and for
        prompts given as ids.
    ends_text: whether the completion begins a new text.
    field: the client's name for the prompt.
    picture: the source, for models that read pictures.
    """

    token_ids: TokenIds
    num_before: int = 0
    is_whole: bool = False
    ends_text: bool = False
    field: str = "prompt"
    picture: Picture | None = None

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens that the completion follows."""
        return self.num_before + len(self.token_ids)

    @property
    def num_read(self) -> int:
        """Return the number of tokens and of the picture's positions."""
        return self.num_tokens + (len(self.picture) if self.picture else 0)


class PromptReader:
    """Reads prompts for one bundle. Needs no engine."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        self._name, self._manifest = manifest.name, manifest
        self._num_prefix = len(manifest.tokens.prompt_prefix)
        self._vocab_size = manifest.vocab_size
        self._context = manifest.limits.max_target_tokens
        self._tokenizer = tokenizer
        self._chat = load_chat_template(manifest, tokenizer)
        # What a special token writes is no text, so nothing could be read of it.
        is_text = TOOL_CALL_BEGIN not in tokenizer.special_tokens.values()
        self._has_tools = is_text and has_tools(manifest.chat_template or "")

    def read(self, prompt: str | TokenIds | Chat, at_once: bool = False) -> Prompt:
        """Return the tokens of a prompt. A chat takes longer, because its template runs in another
        process; at_once is as in `ChatTemplate.prompt_ids`.

        Raises RequestError for a prompt that the model cannot read.
        """
        if isinstance(prompt, Chat):
            shows = self._manifest.picture is not None
            return self._picture_prompt(prompt) if shows else self._chat_prompt(prompt, at_once)
        if self._manifest.picture is not None:
            message = f"model {self._name} reads pictures; send a chat with one"
            raise RequestError("prompt", prompt, message)
        if isinstance(prompt, str):
            with tokenizing("prompt"):
                token_ids = tuple(self._tokenizer.encode(prompt))
            return Prompt(token_ids, self._num_prefix, ends_text=not prompt)
        return self._prompt_of_ids(prompt)

    def check_length(self, prompt: Prompt, max_new_tokens: int) -> None:
        """Raise RequestError if the prompt is empty, or leaves no room for `max_new_tokens`."""
        if prompt.num_tokens == 0:
            reason = "" if prompt.is_whole else ": this model has no start token"
            raise RequestError(prompt.field, "", f"must not be empty{reason}")
        room = self._context - prompt.num_tokens
        if room < min(max_new_tokens, 1):
            message = f"must leave room in the context of {self._context} tokens"
            raise TooManyTokens(prompt.field, f"{prompt.num_tokens} tokens", message)
        if max_new_tokens > room:
            message = (
                f"{prompt.field} ({prompt.num_tokens} tokens) and completion must fit "
                f"the context of {self._context} tokens"
            )
            raise TooManyTokens("max_tokens", max_new_tokens, message)

    def _picture_prompt(self, chat: Chat) -> Prompt:
        """Return the prompt of a chat that is one picture and no text."""
        if len(chat.pictures) != 1:
            message = f"model {self._name} reads one picture: an image_url, or an input_image"
            raise RequestError("messages", f"{len(chat.pictures)} pictures", message)
        for said in chat.messages:
            if said["content"].strip() or "tool_calls" in said:
                reason = f"model {self._name} reads a picture and no text"
                raise RequestError("messages", said["content"], reason)
        if chat.tools:
            reason = f"model {self._name} writes about pictures and calls no tools"
            raise RequestError("tools", f"{len(chat.tools)} tools", reason)
        picture = read_picture(chat.pictures[0], self._manifest, "messages")
        return Prompt((), self._num_prefix, ends_text=True, field="messages", picture=picture)

    def _chat_prompt(self, chat: Chat, at_once: bool) -> Prompt:
        if chat.pictures:
            message = f"model {self._name} reads no pictures, only parts of type text"
            raise RequestError("messages", "image_url", message)
        if self._chat is None:
            message = f"model {self._name} has no chat template; it completes prompts only"
            raise RequestError("messages", f"{len(chat.messages)} messages", message)
        if chat.tools and not self._has_tools:
            message = f"the chat template of model {self._name} shows no tools, or not in a form"
            raise RequestError("tools", f"{len(chat.tools)} tools", f"{message} known here")
        with tokenizing("messages"):
            token_ids = self._chat.prompt_ids(chat, at_once)
        return Prompt(token_ids, is_whole=True, ends_text=not chat.continues_last, field="messages")

    def _prompt_of_ids(self, token_ids: TokenIds) -> Prompt:
        for token_id in token_ids:
            if not 0 <= token_id < self._vocab_size:
                message = f"token ids must be between 0 and {self._vocab_size - 1}"
                raise RequestError("prompt", token_id, message)
        has_text = any(map(self._tokenizer.token_bytes, token_ids))
        return Prompt(token_ids, is_whole=True, ends_text=not has_text)


def load_chat_template(manifest: Manifest, tokenizer: Tokenizer) -> ChatTemplate | None:
    """Return the chat template of a bundle; None if it has none."""
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
