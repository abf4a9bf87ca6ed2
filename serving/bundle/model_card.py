"""What the model card of a bundle says of its licence and its origin.

Cards are Markdown for people, written by readers, by training or by a bundle's maker. What a card
says in another way than these do is not found.
"""

import re

_LICENCE = re.compile(r"^- Licence: (.+)$", re.MULTILINE)
_ORIGIN = re.compile(r"\b(?:Imported|read) from (?:the )?([^\n]+?)[.:]?$", re.MULTILINE)
_RECIPE = re.compile(r"`attendant (?:train|tune)[^`]*`")


def find_licence(card: str) -> str | None:
    """Return the licence that a card names; None if it names none."""
    if listed := _LICENCE.findall(card):
        return str(listed[-1])  # a section that was added to the card knows better
    section = _find_section(card, "Licence")
    return section.partition(". ")[0].rstrip(".") if section else None


def find_origin(card: str) -> str | None:
    """Return where a model was taken from, or the command that trained it; None if the card says
    neither.
    """
    if section := _find_section(card, "Where it comes from"):
        return section.rstrip(".")
    if imported := _ORIGIN.search(card):
        return imported[1].replace("`", "")
    recipe = _RECIPE.search(_find_section(card, "Training"))
    return recipe[0].strip("`") if recipe else None


def _find_section(card: str, title: str) -> str:
    """Return the first paragraph of a section, as one line; an empty text if there is none."""
    _, _, text = card.partition(f"\n## {title}\n")
    paragraph, _, _ = text.strip().partition("\n\n")
    return " ".join(paragraph.split())
