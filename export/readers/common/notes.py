"""Makes notes of what an export leaves out, which the command line and the model card show."""

import re
import reprlib
from collections.abc import Collection
from dataclasses import replace

from export.readers.common.options import Options
from models.storage.checkpoint import CARD_FILE, Checkpoint

MOST_NAMED = 20


def noted(checkpoint: Checkpoint, notes: Collection[str]) -> Checkpoint:
    """Add the notes to the checkpoint and to its model card."""
    if not notes:
        return checkpoint
    lines = "".join(f"\nNote: {note}.\n" for note in notes)
    files = {**checkpoint.files, CARD_FILE: checkpoint.files.get(CARD_FILE, b"") + lines.encode()}
    return replace(checkpoint, notes=(*checkpoint.notes, *notes), files=files)


def unused_notes(options: Options, *without_effect: re.Pattern[str]) -> list[str]:
    """Return a note with the options of a file that were not read, or no note if there are none.

    without_effect: patterns; an option whose whole name matches one is left out.
    """
    found = [
        f"{name} = {reprlib.repr(value)}"
        for name, value in options.unused()
        if not any(pattern.fullmatch(name) for pattern in without_effect)
    ]
    if not found:
        return []
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    shown = ", ".join(found[:MOST_NAMED]) + more
    return [f"{options.file} has keys that are not known here and were not used: {shown}"]
