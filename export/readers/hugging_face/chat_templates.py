"""Reads the chat templates of a folder: one, or several by name."""

from export.readers.common.text.chat_templates import DEFAULT, joined_template
from export.readers.hugging_face.folder import Folder
from models.storage.files import read_file

TEMPLATE_FILE = "chat_template.jinja"
MORE_TEMPLATES = "additional_chat_templates"  # a folder of files
MOST_TEMPLATES = 100


def read_chat_template(folder: Folder) -> str | None:
    """Read the template, in Jinja; None without one. Of several the one for tools is joined with
    the usual one, and others are left out with a note.
    """
    return joined_template(_in_files(folder) or _in_config(folder), folder.notes)


def _in_files(folder: Folder) -> dict[str, str]:
    """Read those that have files of their own, which count before others."""
    paths = sorted((folder.path / MORE_TEMPLATES).glob("*.jinja"))[:MOST_TEMPLATES]
    named = {path.stem: path for path in paths}
    if (path := folder.path / TEMPLATE_FILE).is_file():
        named[DEFAULT] = path
    return {name: read_file(path).decode(errors="replace") for name, path in named.items()}


def _in_config(folder: Folder) -> dict[str, str]:
    template = folder.tokenizer.get("chat_template")
    if isinstance(template, str):
        return {DEFAULT: template}
    several = template if isinstance(template, list) else []
    named = {each.get("name"): each.get("template") for each in several if isinstance(each, dict)}
    return {
        name: text
        for name, text in named.items()
        if isinstance(name, str) and isinstance(text, str)
    }
