"""Recipes that differ by their seed alone, by name: `luong`, `luong-seed-2`, `luong-seed-3`."""

import re
from collections.abc import Sequence

from export.zoo.results import Results

SEED = re.compile(r"-seed-\d+$")


def without_replicas(found: Sequence[Results]) -> list[Results]:
    """All but those of further seeds."""
    return [results for results in found if not SEED.search(results.name)]


def spreads(found: Sequence[Results]) -> list[str]:
    """A sentence for each recipe that was trained with several seeds: beam 5, fp32."""
    lines = []
    for first in without_replicas(found):
        alike = [r for r in found if SEED.sub("", r.name) == first.name]
        bleu = [r.translation.fp32.beam_5.bleu for r in alike if r.translation]
        if len(bleu) > 1:
            figures = ", ".join(f"{each:.1f}" for each in bleu)
            lines.append(
                f"**Seeds**: `{first.name}` has {figures} BLEU with {len(bleu)} seeds, a range of"
                f" {max(bleu) - min(bleu):.1f}; smaller differences between recipes say nothing."
            )
    return lines
