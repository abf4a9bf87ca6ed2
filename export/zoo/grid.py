"""Luong's three scores by where they look (Luong et al. 2015, table 4): BLEU of beam 5, fp32."""

from collections.abc import Sequence

from export.zoo.results import Results

SCORES = ("dot", "general", "concat")
PLACES = ("global", "local-m", "local-p")


def grid(found: Sequence[Results]) -> str:
    """A Markdown table; nothing where one recipe alone is there."""
    by_name = {results.name: results for results in found}
    rows = [[_bleu(by_name.get(recipe_of(s, p))) for p in PLACES] for s in SCORES]
    if sum(cell != "" for row in rows for cell in row) < 2:
        return ""
    lines = [f"| Luong's score | {' | '.join(PLACES)} |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {s} | {' | '.join(row)} |" for s, row in zip(SCORES, rows, strict=True)]
    return "\n".join(lines)


def recipe_of(score: str, place: str) -> str:
    """luong is general and global; what is not, a recipe's name says."""
    parts = [score] * (score != "general") + [place] * (place != "global")
    return "-".join(["luong", *parts])


def _bleu(results: Results | None) -> str:
    if results is None or results.translation is None:
        return ""
    return f"{results.translation.fp32.beam_5.bleu:.1f}"
