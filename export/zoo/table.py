"""Makes the zoo's part of docs/zoo.md from the results files alone: two tables and
what they show."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from export.zoo.effects import effects, grid, without_replicas
from export.zoo.results import Results, SpeedResults, TranslationQuality, TranslationResults
from models.errors import InputError

BEGIN, END = "<!-- zoo -->", "<!-- /zoo -->"

Column = tuple[str, Callable[[Results], object]]


def render(all_results: Sequence[Results], pictures: Mapping[str, str]) -> str:
    """Markdown; what was not measured yet is blank. `pictures`: addresses by what they show."""
    if not all_results:
        return "Nothing is measured yet."
    firsts = without_replicas(all_results)
    translations = _sort_by_year([r for r in firsts if not r.is_of_prose])
    prose = _sort_by_year([r for r in firsts if r.is_of_prose])
    parts = []
    if translations:
        parts += [_table(QUALITY_COLUMNS, translations), _on_quality(translations), grid(firsts)]
    if prose:
        parts += [_table(PROSE_COLUMNS, prose), _on_prose(prose)]
    rows = [*translations, *prose]
    parts += [_table(SPEED_COLUMNS, rows), _on_speed(rows)]
    parts += ["\n".join(f"- {line}" for line in effects(_sort_by_year(all_results)))]
    parts += [f"![{says}]({address})" for says, address in pictures.items()]
    return "\n\n".join(part for part in parts if part)


def block(readme: str) -> str:
    """Write what stands between the marks. Raises InputError where they are not there once each."""
    _, begun, rest = readme.partition(BEGIN)
    text, ended, after = rest.partition(END)
    if not begun or not ended or BEGIN in rest or END in after:
        raise InputError(f"needs {BEGIN} and then {END}, once each: the table goes between them")
    return text.strip()


def readme_problems(path: Path) -> list[str]:
    """Return why the tables cannot be put into a file."""
    try:
        block(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return [f"{path}: there is no such file; --readme says where the tables go"]
    except (OSError, UnicodeDecodeError, InputError) as error:
        return [f"{path}: {error}"]
    return []


def rewrite(path: Path, text: str) -> None:
    """Replace the text between the marks of a file, completely or not at all."""
    readme = path.read_text(encoding="utf-8")
    before, after = readme.partition(BEGIN)[0], readme.partition(END)[2]
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    os.replace(fresh, path)


def _sort_by_year(all_results: Sequence[Results]) -> list[Results]:
    """Sort by the paper's year; recipes of less common languages come last."""
    [(commonest, _)] = Counter(r.languages for r in all_results).most_common(1) or [("", 0)]
    return sorted(
        all_results, key=lambda r: (r.languages != commonest, r.languages, r.year, r.name)
    )


def _quality_column(
    pick: Callable[[TranslationResults], TranslationQuality], name: str
) -> Callable[[Results], object]:
    """A figure of `pick`'s search."""
    return lambda r: r.translation and f"{getattr(pick(r.translation), name):.1f}"


def _speed_column(pick: Callable[[SpeedResults], float], form: str) -> Callable[[Results], object]:
    return lambda r: r.speed and format(pick(r.speed), form)


QUALITY_COLUMNS: list[Column] = [
    ("recipe", lambda r: f"`{r.name}`"),
    ("after", lambda r: r.title),
    ("parameters", lambda r: f"{r.parameters / 1e6:.1f} M"),
    ("minutes", lambda r: r.training and f"{r.training.minutes:.0f}"),
    ("epochs", lambda r: r.training and f"{r.training.epochs:.0f}"),
    ("fp32 greedy", _quality_column(lambda t: t.fp32.greedy, "bleu")),
    ("int8 greedy", _quality_column(lambda t: t.int8.greedy, "bleu")),
    ("fp32 beam 5", _quality_column(lambda t: t.fp32.beam_5, "bleu")),
    ("int8 beam 5", _quality_column(lambda t: t.int8.beam_5, "bleu")),
    ("± (95 %)", _quality_column(lambda t: t.fp32.beam_5, "bleu_interval")),
    ("chrF", _quality_column(lambda t: t.fp32.beam_5, "chrf")),
    ("lower-cased BLEU", _quality_column(lambda t: t.fp32.beam_5, "lowercased_bleu")),
]
PROSE_COLUMNS: list[Column] = [
    ("recipe", lambda r: f"`{r.name}`"),
    ("after", lambda r: r.title),
    ("parameters", lambda r: f"{r.parameters / 1e6:.1f} M"),
    ("minutes", lambda r: r.training and f"{r.training.minutes:.0f}"),
    ("epochs", lambda r: r.training and f"{r.training.epochs:.1f}"),
    ("bits per byte, fp32", lambda r: r.prose and f"{r.prose.fp32:.3f}"),
    ("int8", lambda r: r.prose and f"{r.prose.int8:.3f}"),
    ("perplexity per token", lambda r: r.prose and f"{r.prose.perplexity:.1f}"),
]
SPEED_COLUMNS: list[Column] = [
    ("recipe", lambda r: f"`{r.name}`"),
    ("int8, 1", _speed_column(lambda s: s.int8.batch_1, ",.0f")),
    ("int8, 32", _speed_column(lambda s: s.int8.batch_32, ",.0f")),
    ("fp32, 1", _speed_column(lambda s: s.fp32.batch_1, ",.0f")),
    ("fp32, 32", _speed_column(lambda s: s.fp32.batch_32, ",.0f")),
    ("engine / graph, int8", _speed_column(lambda s: s.int8.engine_over_graph, ".2f")),
    ("engine / graph, fp32", _speed_column(lambda s: s.fp32.engine_over_graph, ".2f")),
    ("state, fixed", lambda r: r.bundle and f"{r.bundle.fixed_bytes:,}"),
    ("per source token", lambda r: r.bundle and f"{r.bundle.bytes_per_source_token:,}"),
    ("per target token", lambda r: r.bundle and f"{r.bundle.bytes_per_target_token:,}"),
]


def _table(columns: Sequence[Column], all_results: Sequence[Results]) -> str:
    heads = [head for head, _ in columns]
    marks = ["---" if head in ("recipe", "after") else "---:" for head in heads]
    rows = ([str(cell_of(results) or "") for _, cell_of in columns] for results in all_results)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in chain([heads, marks], rows))


def _on_quality(all_results: Sequence[Results]) -> str:
    parts = [r.translation for r in all_results if r.translation]
    if not parts:
        return ""
    tests = _list_distinct(f"`{part.test}` ({part.sentences:,} sentences)" for part in parts)
    return (
        f"BLEU and chrF by sacreBLEU on detokenised text, test sets {tests}; chrF, lower-cased BLEU"
        " and the interval are of fp32 and beam 5."
        f" BLEU {_list_distinct(f'`{part.bleu_signature}`' for part in parts)},"
        f" lower-cased {_list_distinct(f'`{part.lowercased_bleu_signature}`' for part in parts)},"
        f" chrF {_list_distinct(f'`{part.chrf_signature}`' for part in parts)}."
        " Lower-cased BLEU, elisions split (l' eau), stands nearer to the tokenised, lower-cased"
        f" BLEU of papers on this test set; it is not the same measure. {_on_int8(parts)}"
        " Minutes are of one processor's work, validations included."
    )


def _on_prose(all_results: Sequence[Results]) -> str:
    parts = [r.prose for r in all_results if r.prose]
    if not parts:
        return ""
    texts = _list_distinct(
        f"{p.documents} documents, {p.bytes:,} bytes, {p.tokens:,} tokens" for p in parts
    )
    windows = _list_distinct(f"{p.window} tokens that advance by {p.stride}" for p in parts)
    return (
        f"Prose that the recipes hold out of training: {texts}; read in windows of {windows}."
        " Minutes are of one processor's work, validations included."
    )


def _on_int8(parts: Sequence[TranslationResults]) -> str:
    changes = [
        round(int8.bleu - fp32.bleu, 1) + 0.0  # no -0.0
        for part in parts
        for fp32, int8 in (
            (part.fp32.greedy, part.int8.greedy),
            (part.fp32.beam_5, part.int8.beam_5),
        )
    ]
    return f"int8 changes BLEU by {min(changes):+.1f} to {max(changes):+.1f}."


def _on_speed(all_results: Sequence[Results]) -> str:
    machines = _list_distinct(
        f"{r.speed.machine}, threads: {r.speed.threads}" for r in all_results if r.speed
    )
    states = (
        "State is what the engine keeps for a row, in bytes: fixed, and for every token of the"
        " source and of the target; what a step overwrites counts twice, since it is read from one"
        " buffer and written to another."
    )
    if not machines:
        return states if any(r.bundle for r in all_results) else ""
    return (
        "Tokens/s are generated tokens, greedy, with so many requests in flight, sources encoded"
        f" ({machines}). Engine / graph is the speed of decoding in the continuous batch over that"
        f" of the step graph alone in ONNX Runtime, 32 rows: {_slowest(all_results)}. {states}"
    )


def _slowest(all_results: Sequence[Results]) -> str:
    ratios = [
        (pace.engine_over_graph, r.name, precision)
        for r in all_results
        if r.speed
        for pace, precision in ((r.speed.int8, "int8"), (r.speed.fp32, "fp32"))
    ]
    ratio, name, precision = min(ratios)
    return f"at least {ratio:.2f} (`{name}`, {precision})"


def _list_distinct(texts: Iterable[str]) -> str:
    """List those that differ."""
    return ", ".join(dict.fromkeys(texts))
