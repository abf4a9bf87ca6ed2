"""`attendant chat`: a chat in the terminal, with a bundle or with a running server."""

import asyncio
import json
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import click

from serving.bundle.manifest import Manifest, Task
from serving.commands.administration import ask, open_url
from serving.commands.options import (
    DEFAULT_TEMPERATURE,
    completion_decoding,
    decoding_options,
    device_option,
    end_quietly_with_the_reader,
    engine_config,
    given_options,
    lines_of,
)
from serving.errors import AttendantError

if TYPE_CHECKING:
    from serving.pipelines.jobs import CompletionDelta

Message = dict[str, Any]  # with `role` and `content`
Answer = Generator[str, None, None]

_URL = re.compile("https?://")
_PROMPT, _PROMPT_OF_NEXT_LINE = "> ", "... "
_HELP = """\
/help         list these commands
/reset        forget the chat, and begin a new one
/system TEXT  begin a new chat with this system message, or without one
/quit         end, as Ctrl-D does
Ctrl-C stops an answer. A line that ends with \\ goes on in the next one. Begin a question with a
space if it begins with a slash."""


class ChatModel(Protocol):
    """A model that answers chats."""

    name: str

    def answer(self, messages: Sequence[Message]) -> Answer:
        """Yield the answer to the last message in parts. Closing the generator stops the model.
        Raise AttendantError with why there is no answer.
        """


class BundleModel:
    """The model of a bundle, which runs in this process."""

    def __init__(self, folder: Path, device: str, options: dict[str, Any]) -> None:
        self._folder, self._device, self._options = folder, device, options
        self._runner, self._stack = asyncio.Runner(), AsyncExitStack()

    def __enter__(self) -> Self:
        """Load the bundle. Raise AttendantError if it has no model that chats."""
        from serving.bundle.opening import open_manifest
        from serving.pipelines.loading import open_model

        _check_chats(self._folder, open_manifest(self._folder))
        model = open_model(self._folder, engine_config(self._device))
        catalog = self._runner.run(self._stack.enter_async_context(model))
        [card] = catalog.local_cards
        self.name, self._decoding = card.name, completion_decoding(card, self._options)
        self._model = self._runner.run(catalog.get_model(card.name, Task.GENERATE))
        return self

    def __exit__(self, *exception: object) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    def answer(self, messages: Sequence[Message]) -> Answer:
        from serving.pipelines.jobs import CompletionJob
        from serving.text.chat_template import Chat

        stop = tuple(filter(None, self._options["stop"]))
        chat = Chat(tuple(messages))
        job = CompletionJob("chat", (chat,), self._decoding, stop=stop, streams=True)
        stream = self._model.stream(job)

        async def next_delta() -> "CompletionDelta | None":
            return await anext(stream, None)

        async def end_request() -> None:
            await stream.aclose()

        try:
            # Ctrl-C cancels a run of the runner, and with it the request.
            while (delta := self._runner.run(next_delta())) is not None:
                yield delta.text
        finally:
            self._runner.run(end_request())


def _check_chats(folder: Path, manifest: Manifest) -> None:
    """Raise AttendantError, with what to do, if a bundle's model does not answer chats."""
    if manifest.serves is Task.GENERATE and manifest.chat_template is not None:
        return
    advice = {
        Task.GENERATE: f"`attendant generate --model {folder}` goes on from a text with it",
        Task.TRANSLATE: f"`attendant translate --model {folder}` translates with it",
    }.get(manifest.serves, "give one that was trained to answer")
    raise AttendantError(f"{folder} is no model that chats, it has no chat template: {advice}")


class ServerModel:
    """A model of a running server, asked in OpenAI's protocol.

    fields: of the body of each request, besides the messages.
    """

    def __init__(self, url: str, model: str | None, key: str, fields: dict[str, Any]) -> None:
        self._url, self._authorization = url.rstrip("/").removesuffix("/v1"), f"Bearer {key}"
        self.name = model or self._first_that_chats()
        self._fields = {**fields, "model": self.name, "stream": True}

    def _first_that_chats(self) -> str:
        try:
            models = ask("GET", f"{self._url}/v1/models", self._authorization)["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise AttendantError(f"{self._url} did not list its models: {error}") from None
        # Servers of others list no more than ids.
        names = [model["id"] for model in models if model.get("has_chat_template", True)]
        if not names:
            raise AttendantError(f"none of the models of {self._url} answers chats")
        return str(names[0])

    def answer(self, messages: Sequence[Message]) -> Answer:
        headers = {"Authorization": self._authorization.strip(), "Content-Type": "application/json"}
        body = json.dumps({**self._fields, "messages": list(messages)}).encode()
        try:
            with open_url("POST", f"{self._url}/v1/chat/completions", headers, body) as lines:
                yield from _texts_of_events(lines)
        except (ValueError, OSError) as error:
            raise AttendantError(str(error)) from None


def _texts_of_events(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the texts of an answer that is streamed as server-sent events."""
    for line in lines:
        data = line.decode(errors="replace").partition("data:")[2].strip()
        if not data or data == "[DONE]":
            continue
        event = json.loads(data)
        if error := event.get("error"):
            message = error.get("message", error) if isinstance(error, dict) else error
            raise AttendantError(str(message))
        for choice in event.get("choices", ()):
            if text := choice.get("delta", {}).get("content"):
                yield text


class Conversation:
    """The messages of a chat, and the commands that change them."""

    def __init__(self, model: ChatModel, system: str | None) -> None:
        self._model = model
        self._messages: list[Message] = []
        self.begin(system)

    def begin(self, system: str | None) -> None:
        """Begin a new chat."""
        self._system = system
        self._messages = [] if system is None else [{"role": "system", "content": system}]

    def obey(self, command: str) -> str:
        """Do what a line that begins with a slash says, and return what there is to say of it.
        Raise EOFError to end the program.
        """
        name, _, text = command.strip().partition(" ")
        match name:
            case "/help":
                return _HELP
            case "/reset":
                self.begin(self._system)
                return "A new chat."
            case "/system":
                self.begin(text.strip() or None)
                return f"A new chat, {'with' if text.strip() else 'without'} a system message."
            case "/quit":
                raise EOFError
        return f"There is no command {name}; /help lists them."

    def ask(self, question: str) -> bool:
        """Write the answer as it comes, and return whether it is whole: Ctrl-C stops it, and what
        was written of it stays in the chat. Raise AttendantError if there is none; the question
        then is not part of the chat.
        """
        from serving.text.checks import check_text

        check_text("question", question)
        messages = [*self._messages, {"role": "user", "content": question}]
        parts: list[str] = []
        is_whole = True
        try:
            with closing(self._model.answer(messages)) as answer:
                for text in answer:
                    parts.append(text)
                    sys.stdout.write(text)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            is_whole = False
        finally:
            if parts:
                sys.stdout.write("\n")
                sys.stdout.flush()
        if parts:
            self._messages = [*messages, {"role": "assistant", "content": "".join(parts)}]
        return is_whole


@click.command()
@click.argument("bundle_or_url")
@click.option("--system", help="The system message.")
@click.option(
    "--max-tokens", type=click.IntRange(1), help="Of an answer.  [default: as many as fit]"
)
@decoding_options(
    has_source=False,
    temperature=f"the bundle's, else {DEFAULT_TEMPERATURE}, under beam search always 0",
)
@click.option("--stop", multiple=True, help="Text that ends an answer.")
@click.option(
    "--whole-input",
    is_flag=True,
    help="Standard input is one question.  [default: each line is one]",
)
@click.option("--model", help="Of a server: the model's name.  [default: the first that chats]")
@click.option(
    "--api-key",
    default="",
    envvar="ATTENDANT_KEY",
    show_envvar=True,
    help="Of a server: a key, if it needs one.",
)
@device_option
def chat(
    bundle_or_url: str,
    system: str | None,
    model: str | None,
    api_key: str,
    whole_input: bool,
    device: str,
    **options: Any,
) -> None:
    """Chat with the model of a bundle, or with a running server.

    Answers are written as they come. /help lists the commands of the chat; Ctrl-C stops an answer,
    Ctrl-D ends. Where standard input is no terminal, its lines are the questions, and standard
    output has nothing but the answers. What options do not say is as the bundle's makers recommend.

    \b
    Examples:
      attendant chat smollm2-135m-instruct
      attendant chat smollm2-135m-instruct --system 'Answer in verse.' --temperature 0
      attendant chat http://localhost:8000 --model smollm2-135m-instruct
      attendant chat smollm2-135m-instruct --whole-input < letter.txt
    """
    end_quietly_with_the_reader()
    if _URL.match(bundle_or_url):
        if device != "auto":
            raise click.UsageError("--device is for bundles: a server has chosen its own")
        fields = given_options(options)
        if options["max_tokens"] is not None:
            fields["max_tokens"] = options["max_tokens"]
        if options["stop"]:
            fields["stop"] = [*options["stop"]]
        _talk(Conversation(ServerModel(bundle_or_url, model, api_key, fields), system), whole_input)
        return
    if model is not None:
        raise click.UsageError("--model is for servers: a bundle has one model")
    with BundleModel(Path(bundle_or_url), device, options) as bundle_model:
        _talk(Conversation(bundle_model, system), whole_input)


def _talk(conversation: Conversation, is_whole_input: bool) -> None:
    if is_whole_input:
        _answer_input(conversation, ["".join(lines_of(sys.stdin.buffer))])
    elif sys.stdin.isatty():
        _answer_terminal(conversation)
    else:
        _answer_input(conversation, (line.rstrip("\r\n") for line in lines_of(sys.stdin.buffer)))


def _answer_input(conversation: Conversation, questions: Iterable[str]) -> None:
    """Answer questions of a file or a pipe. The first failure ends the program, as Ctrl-C does."""
    for question in questions:
        if question.strip() and not conversation.ask(question):
            sys.exit(130)  # as a shell reports SIGINT


def _answer_terminal(conversation: Conversation) -> None:
    with suppress(ImportError):
        import readline  # noqa: F401 (lines can be edited, and former ones are called back)
    click.echo("/help lists the commands; Ctrl-D ends.", err=True)
    while True:
        try:
            question = _read_question()
            if question.startswith("/"):
                click.echo(conversation.obey(question), err=True)
            elif question.strip() and not conversation.ask(question.strip()):
                click.echo("(stopped)", err=True)
        except KeyboardInterrupt:
            click.echo()  # the line is given up
        except EOFError:
            click.echo()
            return
        except AttendantError as error:
            click.echo(f"attendant: {error}", err=True)


def _read_question() -> str:
    """Read a line, and those that follow while each ends with a backslash."""
    lines = [input(_PROMPT)]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input(_PROMPT_OF_NEXT_LINE))
    return "\n".join(lines)
