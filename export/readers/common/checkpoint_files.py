"""The files of a checkpoint that are not its weights: tokenizers and the model card."""

from collections.abc import Collection
from dataclasses import replace

from models.checkpoint import CARD_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE, Checkpoint


def checkpoint_files(card: bytes, source: bytes, target: bytes | None = None) -> dict[str, bytes]:
    """Return the files of a checkpoint by name.

    target: the tokenizer of the target; None if it is the source's.
    """
    files = {TOKENIZER_FILE: source, CARD_FILE: card}
    return files if target is None or target == source else files | {TARGET_TOKENIZER_FILE: target}


def write_card(title: str, origin: str, *facts: str) -> bytes:
    """Return the beginning of a model card in Markdown."""
    lines = [f"# {title}", "", origin, "", *(f"- {fact}" for fact in facts)]
    return ("\n".join(lines) + "\n").encode()


def add_notes(checkpoint: Checkpoint, notes: Collection[str]) -> Checkpoint:
    """Return the checkpoint with the notes added to it and to its model card."""
    if not notes:
        return checkpoint
    lines = "".join(f"\nNote: {note}.\n" for note in notes)
    files = {**checkpoint.files, CARD_FILE: checkpoint.files.get(CARD_FILE, b"") + lines.encode()}
    return replace(checkpoint, notes=(*checkpoint.notes, *notes), files=files)
