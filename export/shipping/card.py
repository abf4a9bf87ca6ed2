"""Completes the card that training wrote: its quality section, and how weights are stored."""

import re

from models.storage.safetensors import Storage

QUALITY = re.compile(r"^## Quality\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
STORED = re.compile(r"stored in (?:fp32|fp16|bf16|int8)")


def completed(card: str, scores: str, storage: Storage, command: str) -> str:
    """Put scores in place of those that training told, or at the end of a card without any."""
    section = f"## Quality\n\n{scores}\n\nBy `{command}`.\n\n"
    text = STORED.sub(f"stored in {storage}", card)
    if QUALITY.search(text):
        return QUALITY.sub(lambda _: section, text, count=1).rstrip() + "\n"
    return f"{text.rstrip()}\n\n{section}".rstrip() + "\n"
