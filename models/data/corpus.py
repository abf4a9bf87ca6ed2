"""Reads training text: parallel sentences (TSV) and prose (plain text), gzipped or not."""

import gzip
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHAPTER = re.compile(r"^(?=(?:CHAPTER|Chapter) )", re.MULTILINE)
PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
PARALLEL = re.compile(r"(.*)\{(\w+),(\w+)\}(.*)")
MIN_DOCUMENT_CHARACTERS = 500


@dataclass(frozen=True)
class Pair:
    """Is one line of a parallel corpus: where it is from, and the two sentences."""

    origin: str
    source: str
    target: str


def read_text(path: str | Path) -> str:
    """Read the text of a file, decompressed when its name ends in `.gz`.

    Raises OSError, and ValueError naming the file if its bytes are no text.
    """
    path = Path(path)
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
                return file.read()
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    except EOFError:
        raise ValueError(f"{path} ends too early: its last part is missing") from None


def read_pairs(path: str | Path) -> list[Pair]:
    """Read lines of `origin<TAB>source<TAB>target`, or all of `source<TAB>target`, whose origin is
    the file's name; or `folder/name.{en,fr}.gz`: two files of sentences that belong together line
    by line; their folder is the origin.

    Raises ValueError naming the first bad line.
    """
    sides = PARALLEL.fullmatch(Path(path).name)
    if sides is None:
        return list(_tabbed(path))
    before, *languages, after = sides.groups()
    return _parallel([Path(path).parent / f"{before}{each}{after}" for each in languages])


def _parallel(paths: list[Path]) -> list[Pair]:
    source, target = (read_text(path).removesuffix("\n").split("\n") for path in paths)
    if len(source) != len(target):
        raise ValueError(
            f"{paths[0]} has {len(source)} lines and {paths[1]} has {len(target)}: "
            f"they are not translations of each other line by line"
        )
    origin = paths[0].absolute().parent.name
    return [Pair(origin, s.strip(), t.strip()) for s, t in zip(source, target, strict=True)]


def _tabbed(path: str | Path) -> Iterator[Pair]:
    name, num_fields = Path(path).name.split(".")[0], None
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line:
            continue
        fields = line.split("\t")
        num_fields = num_fields or (2 if len(fields) == 2 else 3)
        if len(fields) != num_fields:
            expected = ("source and target", "origin, source and target")[num_fields - 2]
            raise ValueError(
                f"{path}:{number}: expected {expected} separated by tabs, "
                f"found {len(fields)} fields"
            )
        yield Pair(*fields) if num_fields == 3 else Pair(name, *fields)


def read_documents(path: str | Path) -> list[str]:
    """Read chapters (or, in a file of one document a line, lines), one paragraph a line."""
    text = read_text(path)
    parts = CHAPTER.split(text) if CHAPTER.search(text) else text.split("\n")
    documents = [_unwrap(part) for part in parts]
    return [d for d in documents if len(d) >= MIN_DOCUMENT_CHARACTERS]


def hold_out(documents: list[str], fraction: float, seed: int) -> tuple[list[str], list[str]]:
    """Split documents into (training, held out), always the same way for one seed."""
    order = list(range(len(documents)))
    random.Random(seed).shuffle(order)
    held = set(order[: max(1, round(fraction * len(order)))])
    return (
        [d for i, d in enumerate(documents) if i not in held],
        [d for i, d in enumerate(documents) if i in held],
    )


def _unwrap(text: str) -> str:
    paragraphs = (" ".join(p.split()) for p in PARAGRAPH_BREAK.split(text))
    return "\n".join(p for p in paragraphs if p)
