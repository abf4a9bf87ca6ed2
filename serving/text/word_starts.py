"""A tokenizer for text that goes on from other text: nothing is put before it, nothing taken off.

Many tokenizers put a space before a text, so that its first word is written as all others are.
"""

from collections.abc import Mapping
from typing import Any

Spec = Mapping[str, Any]


def inside_a_text(tokenizer: Spec) -> dict[str, Any]:
    """A `tokenizer.json` without what it does where a text begins."""
    normalizer, pre_tokenizer = (
        _without(tokenizer.get(name)) for name in ("normalizer", "pre_tokenizer")
    )
    return {**tokenizer, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}


def _without(step: Spec | None) -> Spec | None:
    if step is None or _is_start(step):
        return None
    for name in ("normalizers", "pretokenizers"):
        if name in step:
            parts = [_without(part) for part in step[name] if not _eats_spaces(part, step[name])]
            return {**step, name: [part for part in parts if part is not None]}
    changes: dict[str, Any] = {
        "Metaspace": {"prepend_scheme": "never"},
        "ByteLevel": {"add_prefix_space": False},
        "Strip": {"strip_left": False},
    }
    return {**step, **changes.get(step["type"], {})}


def _is_start(step: Spec) -> bool:
    """Prepends something, or replaces what stands at the very beginning."""
    pattern = step.get("pattern")
    is_anchored = isinstance(pattern, dict) and pattern.get("Regex", "").startswith("\\A")
    return step["type"] == "Prepend" or is_anchored


def _eats_spaces(step: Spec, steps: list[Spec]) -> bool:
    """Before a Metaspace, which parts words itself: it would not see them any more."""
    return step["type"] == "WhitespaceSplit" and any(s["type"] == "Metaspace" for s in steps)
