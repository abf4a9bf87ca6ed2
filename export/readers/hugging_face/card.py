"""Writes what is known of a folder's model as the beginning of a model card."""

from pathlib import Path

from export.readers.common.files import card_of
from export.readers.common.options import Options
from models.storage.files import read_file


def folder_card(path: Path, config: Options) -> bytes:
    """Write name, kind and licence in Markdown, as far as the folder says them."""
    name = config.get("_name_or_path") or path.resolve().name
    facts = [f"Architecture: {config.get('model_type')}"]
    if licence := _licence(path / "README.md"):
        facts.append(f"Licence: {licence}")
    return card_of(path.resolve().name, f"Imported from the Hugging Face folder `{name}`.", *facts)


def _licence(path: Path) -> str | None:
    """Find `license` in the folder's own card, which begins with YAML between lines of `---`."""
    try:
        text = read_file(path).decode(errors="replace")
    except OSError:
        return None
    _, _, head = text.partition("---\n")
    for line in head.partition("\n---")[0].splitlines():
        name, _, value = line.partition(":")
        if name == "license":
            return value.strip().strip("\"'") or None
    return None
