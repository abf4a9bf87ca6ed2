"""Rewrites a tokenizer for text that goes on from other text: nothing is put before it, nothing
taken off.

Many tokenizers put a space before a text, so that its first word is written as all others are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Spec = Mapping[str, Any]


def inside_a_text(tokenizer: Spec) -> dict[str, Any]:
    """Return a `tokenizer.json` without what it does where a text begins."""
    normalizer, pre_tokenizer = (
        _without(tokenizer.get(name)) for name in ("normalizer", "pre_tokenizer")
    )
    parts = (tokenizer.get("pre_tokenizer") or {}).get("pretokenizers", ())
    if _parts_words_twice(parts):
        rest = [part for part in parts if part["type"] != "WhitespaceSplit"]
        pre_tokenizer = _without({"type": "Sequence", "pretokenizers": rest})
        steps = [normalizer] if normalizer else []
        normalizer = {"type": "Sequence", "normalizers": [*steps, *_SINGLE_SPACES]}
    return {**tokenizer, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}


_SINGLE_SPACES = [
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": r" \z"}, "content": ""},
]


def _parts_words_twice(parts: Sequence[Spec]) -> bool:
    """Check that words are parted by white space, which a Metaspace after it, that puts a space
    before each, sees no more.
    """
    return {"WhitespaceSplit", "Metaspace"} <= {str(part["type"]) for part in parts}


def _without(step: Spec | None) -> Spec | None:
    if step is None or _is_start(step):
        return None
    for name in ("normalizers", "pretokenizers"):
        if name in step:
            parts = map(_without, step[name])
            return {**step, name: [part for part in parts if part is not None]}
    changes: dict[str, Any] = {
        "Metaspace": {"prepend_scheme": "never"},
        "ByteLevel": {"add_prefix_space": False},
        "Strip": {"strip_left": False},
    }
    return {**step, **changes.get(str(step["type"]), {})}


def _is_start(step: Spec) -> bool:
    """Check that a step prepends something, or replaces what stands at the very beginning."""
    pattern = step.get("pattern")
    is_anchored = isinstance(pattern, dict) and pattern.get("Regex", "").startswith("\\A")
    return step["type"] == "Prepend" or is_anchored
