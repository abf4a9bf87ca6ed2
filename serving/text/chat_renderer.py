"""Renders chat templates: a program that reads a template and its variables from standard input
and writes the text, or what went wrong, to standard output, one line of JSON each.

A template comes with a model, so it is not trusted: it runs in Jinja's sandbox, in a process of
its own (`template` starts it) with little memory and time. A template that takes more dies with it.
Filters, tags and functions are those of transformers' `apply_chat_template`.
"""

import json
import resource
import signal
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARACTERS = 4_000_000
MAX_MEMORY_BYTES = 2**30
MAX_SECONDS = 1.0  # of processor time
_MAX_WORDS = 1_000  # characters of an error


class GenerationTag(Extension):
    """Renders what `{% generation %}` marks as it is: models are trained on it."""

    tags = {"generation"}  # noqa: RUF012  jinja reads it from the class

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def environment() -> ImmutableSandboxedEnvironment:
    jinja = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    jinja.filters["tojson"] = _to_json
    jinja.globals["raise_exception"] = _raise_exception
    jinja.globals["strftime_now"] = _strftime_now
    return jinja


def render(template: str, variables: dict[str, Any]) -> str:
    """Return the text of a template. Raises whatever the template does."""
    pieces: list[str] = []
    num_characters = 0
    for piece in _compile_template(template).generate(variables):
        pieces.append(piece)
        num_characters += len(piece)
        if num_characters > MAX_CHARACTERS:
            raise OverflowError(f"it writes more than {MAX_CHARACTERS} characters")
    return "".join(pieces)


def answer(request: dict[str, Any]) -> dict[str, str]:
    """Return the text, or the error: in its own words where the template refuses the messages."""
    try:
        return {"text": render(request["template"], request["variables"])}
    except TemplateSyntaxError as error:
        return {"error": f"it has a mistake in line {error.lineno}: {error.message}"}
    except SecurityError as error:
        return {"error": f"it may not do that: {error}"}
    except TemplateError as error:
        return {"error": str(error)[:_MAX_WORDS]}
    except MemoryError:
        return {"error": f"it takes more than {MAX_MEMORY_BYTES >> 20} MiB of memory"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:_MAX_WORDS]}


def serve() -> None:
    """Answer until nobody asks any more. Too much time ends the process: even C code is stopped."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    for line in sys.stdin.buffer:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        reply = json.dumps(answer(request))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(reply + "\n")
        sys.stdout.flush()


@lru_cache(maxsize=8)
def _compile_template(template: str) -> Template:
    return environment().from_string(template)


def _to_json(value: Any, **options: Any) -> str:
    """Write JSON; unlike Jinja's own filter nothing is escaped for HTML."""
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


if __name__ == "__main__":
    serve()
