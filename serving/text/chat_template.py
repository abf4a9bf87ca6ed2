"""Writes chats as prompts, by the model's own chat template.

The template writes the whole prompt, special tokens included, so special tokens are read from what
it writes. A message cannot forge them: where its text looks like a special token, that is cut after
its first character and the parts are tokenised on their own. Hugging Face's `apply_chat_template`
leaves such text to be read as the special token; all other prompts are token for token the same.
"""

import json
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving.errors import RequestError
from serving.requests.parameters import TokenIds
from serving.text.checks import check_text
from serving.text.reasoning_channels import CHANNEL, FINAL
from serving.text.tokenizer import Tokenizer

_PROGRAM = Path(__file__).with_name("chat_renderer.py")
_CUT_MARK = "\U000f0000"  # for private use: no text means anything by it
_CONTINUED = "CONTINUED_FROM_HERE "
_END_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Chat:
    """The messages of a chat.

    messages: with `role`, `content` and what else the template may know of.
    opens_answer: the template ends with what begins an answer.
    continues_last: the last message is not ended: the answer goes on with it.
    variables: further ones of the template.
    tools: that the answer may call, as the template reads them.
    pictures: files, for models that read pictures; templates do not show them.
    """

    messages: tuple[dict[str, Any], ...]
    opens_answer: bool = True
    continues_last: bool = False
    variables: dict[str, Any] = field(default_factory=dict)
    tools: tuple[dict[str, Any], ...] = ()
    pictures: tuple[bytes, ...] = field(default=(), repr=False)


class ChatTemplate:
    """Writes prompts by one model's template.

    special_ids: `bos_token` and its like, as the template calls them.
    """

    def __init__(
        self, template: str, tokenizer: Tokenizer, special_ids: Mapping[str, int | None]
    ) -> None:
        self._template = template
        self._tokenizer = tokenizer
        texts = tokenizer.special_tokens
        self._names = {
            name: texts[i] for name, i in special_ids.items() if i is not None and i in texts
        }
        self._special_tokens = _special_token_pattern(texts.values())
        self._final = FINAL if CHANNEL in texts.values() else ""
        self._renderer = TemplateProcess()

    def prompt_ids(self, chat: Chat, at_once: bool = False) -> TokenIds:
        """Return the whole prompt. Raises RequestError with the template's own words.

        at_once: the model answers without thinking first, in the form of `HarmonyChannels`.
        """
        final = self._final if at_once and chat.opens_answer else ""
        return self._ids(self.text(chat) + final)

    def ids_around(self, chat: Chat, mark: str) -> tuple[TokenIds, TokenIds]:
        """Return the prompt before and after a mark in it, to be answered at once. Raises
        RequestError as `prompt_ids`.
        """
        before, *others = self.text(chat).split(mark)
        if len(others) != 1:
            raise _template_error(
                list(chat.messages), "the model's chat template must show a text once"
            )
        return self._ids(before), self._ids(others[0] + self._final, begins=False)

    def _ids(self, text: str, begins: bool = True) -> TokenIds:
        """Return the ids of a part of a prompt, its beginning or not."""
        first, *others = text.split(_CUT_MARK)
        encode = self._tokenizer.encode if begins else self._tokenizer.encode_inside
        ids = encode(first, parse_special=True)
        for part in others:
            ids += self._tokenizer.encode_inside(part, parse_special=True)
        return tuple(ids)

    def text(self, chat: Chat) -> str:
        """Return the rendered chat, with the places where it must be cut."""
        messages, chat_variables = self._read_chat(chat)
        if chat.continues_last:
            messages[-1] = {**messages[-1], "content": messages[-1]["content"] + _CONTINUED}
        variables = {
            "tools": self._cut_special_tokens(list(chat.tools)) or None,
            "documents": None,
            **self._names,
            **chat_variables,
            "messages": messages,
            "add_generation_prompt": chat.opens_answer,
        }
        text = self._render(variables)
        return (
            self._cut_after_last_message(text, messages[-1]["content"])
            if chat.continues_last
            else text
        )

    def _read_chat(self, chat: Chat) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return messages and variables without anything that could be a special token."""
        try:
            return [
                self._cut_special_tokens(message) for message in chat.messages
            ], self._cut_special_tokens(chat.variables)
        except RecursionError:
            names = sorted(chat.variables)
            raise RequestError("chat_template_kwargs", names, "is nested too deeply") from None

    def _render(self, variables: dict[str, Any]) -> str:
        answer = self._renderer.render(self._template, variables)
        if (error := answer.get("error")) is not None:
            raise _template_error(variables["messages"], f"the model's chat template: {error}")
        check_text("messages", answer["text"])
        return answer["text"]

    def _cut_after_last_message(self, text: str, content: str) -> str:
        """Cut the text at the end of the last message. A template that trims it leaves no space
        there.
        """
        before, mark, after = text.rpartition(_CONTINUED.strip())
        if not mark or content.removesuffix(_CONTINUED).strip() not in before:
            message = "the model's chat template does not show the last message as it is"
            raise RequestError("continue_final_message", True, message)
        return before if after.startswith(" ") else before.rstrip()

    def _cut_special_tokens(self, value: Any) -> Any:
        """Cut all text in a value from outside, so that none of it is a special token."""
        if isinstance(value, str):
            return self._special_tokens.sub(rf"\g<0>{_CUT_MARK}", value.replace(_CUT_MARK, ""))
        if isinstance(value, dict):
            return {
                self._cut_special_tokens(key): self._cut_special_tokens(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._cut_special_tokens(item) for item in value]
        return value


class TemplateProcess:
    """Runs the program `rendering`, which starts when it is needed and ends with this object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._end: Callable[[], object] = lambda: None

    def render(self, template: str, variables: dict[str, Any]) -> dict[str, str]:
        """Return `text`, or the `error` that the template has made. Any thread may call it."""
        line = json.dumps({"template": template, "variables": variables})
        with self._lock:
            if self._process is None:
                self._process = _start_process()
                self._end = weakref.finalize(self, _end, self._process)
            reply = _ask(self._process, line)
            if not reply:
                self._end()
                self._process = None
                return {"error": "it takes too much time or memory"}
        answer: dict[str, str] = json.loads(reply)
        return answer


def _start_process() -> "subprocess.Popen[str]":
    """Start the program in a session of its own: Ctrl-C is not for it."""
    return subprocess.Popen(
        [sys.executable, "-P", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _ask(process: "subprocess.Popen[str]", line: str) -> str:
    """Return the answer; none of a process that has died of the question."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return process.stdout.readline()
    except BrokenPipeError:
        return ""


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate(timeout=_END_TIMEOUT_SECONDS)


def _special_token_pattern(special_tokens: Iterable[str]) -> re.Pattern[str]:
    """Match the first character of whatever looks like a special token, also within another. A look
    at that character alone makes it a hundred times as fast where there are hundreds of them.
    """
    longer = [token for token in special_tokens if len(token) > 1]
    if not longer:
        return re.compile(r"(?!)")
    first = "".join(re.escape(character) for character in sorted({token[0] for token in longer}))
    return re.compile(rf"(?=[{first}])(?={'|'.join(map(re.escape, longer))}).", re.DOTALL)


def _template_error(messages: list[dict[str, Any]], message: str) -> RequestError:
    roles = [message.get("role") for message in messages]
    return RequestError("messages", roles, message)
