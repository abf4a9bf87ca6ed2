"""Writes the files of a checkpoint that bundles take over: its tokenizers and its model card."""

from models.storage.checkpoint import CARD_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE


def checkpoint_files(card: bytes, source: bytes, target: bytes | None = None) -> dict[str, bytes]:
    """Name them. target: the tokenizer of the target, which may be the source's."""
    files = {TOKENIZER_FILE: source, CARD_FILE: card}
    return files if target is None or target == source else files | {TARGET_TOKENIZER_FILE: target}


def card_of(title: str, origin: str, *facts: str) -> bytes:
    """Write the beginning of a model card in Markdown."""
    lines = [f"# {title}", "", origin, "", *(f"- {fact}" for fact in facts)]
    return ("\n".join(lines) + "\n").encode()
