"""`attendant mcp` offers a running server to editors and assistants, by the Model Context Protocol:
they start the command, and speak to it through its standard input and output.
"""

import csv
import io
from dataclasses import dataclass
from typing import Any

import click

from serving.commands.administration import ask

_INSTRUCTIONS = "Translates with a server that the user runs. Languages are codes such as pt-br."

_NAMES = ("translate", "detect_language", "list_languages", "list_glossaries", "create_glossary")


@dataclass(frozen=True)
class Tools:
    """The tools, which ask the server at `url`. A client shows their docstrings to its model."""

    url: str
    api_key: str

    def translate(
        self,
        texts: list[str],
        target: str,
        source: str | None = None,
        glossary_id: str | None = None,
    ) -> list[str]:
        """Translate texts; returns one translation for each. source and target are codes of
        languages. Without source the language of each text is identified. A glossary, by its id,
        says how its terms are translated, and needs source.
        """
        body = {"text": texts, "target_lang": target, "source_lang": source}
        answer = self._ask("POST", "/v2/translate", body | {"glossary_id": glossary_id})
        return [translation["text"] for translation in answer["translations"]]

    def detect_language(self, text: str) -> list[dict[str, Any]]:
        """Identify the language of a text; returns the likeliest languages with a confidence in
        percent, the likeliest first.
        """
        return list(self._ask("POST", "/detect", {"q": text}))

    def list_languages(self) -> list[dict[str, Any]]:
        """List the languages that can be translated, each with those that it can be translated
        into.
        """
        return list(self._ask("GET", "/languages"))

    def list_glossaries(self) -> list[dict[str, Any]]:
        """List the glossaries, with their ids and pairs of languages."""
        return list(self._ask("GET", "/v3/glossaries")["glossaries"])

    def create_glossary(
        self, name: str, source: str, target: str, entries: dict[str, str]
    ) -> dict[str, Any]:
        """Make a glossary of one pair of languages; returns it with its id. entries are terms of
        the source language with their translations.
        """
        rows = io.StringIO()
        csv.writer(rows).writerows(entries.items())
        dictionary = {"source_lang": source, "target_lang": target, "entries_format": "csv"}
        dictionary["entries"] = rows.getvalue()
        body = {"name": name, "dictionaries": [dictionary]}
        return dict(self._ask("POST", "/v3/glossaries", body))

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of an answer. Raise ToolError with the server's own reason."""
        from mcp.server.mcpserver.exceptions import ToolError

        scheme = "DeepL-Auth-Key" if path.startswith(("/v2/", "/v3/")) else "Bearer"
        try:
            return ask(method, self.url + path, f"{scheme} {self.api_key}", body)
        except ValueError as error:
            raise ToolError(str(error)) from None


@click.command()
@click.option(
    "--url", default="http://127.0.0.1:8000", show_default=True, help="Where the server listens."
)
@click.option(
    "--api-key",
    default="",
    envvar="ATTENDANT_KEY",
    show_envvar=True,
    help="A key, if the server needs one.",
)
def mcp(url: str, api_key: str) -> None:
    """Offer a running server to editors and assistants, by MCP.

    They start this command themselves, and find tools that translate, identify languages, and list
    and make glossaries.

    \b
    Example:
      attendant mcp --url http://localhost:8000
    """
    from mcp.server import MCPServer

    tools = Tools(url.rstrip("/"), api_key)
    server = MCPServer("attendant", instructions=_INSTRUCTIONS, log_level="WARNING")
    for name in _NAMES:
        server.add_tool(getattr(tools, name))
    server.run()
