"""Training text: parallel sentences (TSV) and prose (plain text), gzipped or not; the words that a
model can know; and scores of predicted prose.

Prose is scored in bits per byte, which do not depend on the tokenizer, and by perplexity per token.
The text is one stream of documents, each with its </s>. A window slides over it by half of the
tokens that the model can read: every token is predicted once, and all but those of the first half
window have at least half a window before them.
"""

import gzip
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from models.conventions import AddedTokens
from models.data.tokenizer import encode_all
from models.errors import InputError

CHAPTER = re.compile(r"^(?=(?:CHAPTER|Chapter) )", re.MULTILINE)
PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
PARALLEL = re.compile(r"(.*)\{(\w+),(\w+)\}(.*)")
MIN_DOCUMENT_CHARACTERS = 500


@dataclass(frozen=True)
class SentencePair:
    """One line of a parallel corpus: its origin and the two sentences."""

    origin: str
    source: str
    target: str


def read_text(path: str | Path) -> str:
    """Return the text of a file, decompressed if its name ends in `.gz`, without a byte order mark.
    Raises OSError, and InputError naming the file if its bytes are not UTF-8.
    """
    path = Path(path)
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="\n") as file:
                return file.read()
        return path.read_text(encoding="utf-8-sig")
    except gzip.BadGzipFile:
        raise InputError(f"{path} is no gzip file, though its name ends in .gz") from None
    except UnicodeDecodeError as error:
        reason = f"{error.reason} at byte {error.start}"
        raise InputError(f"{path} is not UTF-8: {reason}; save it as UTF-8") from None
    except EOFError:
        raise InputError(f"{path} ends too early: its last part is missing") from None


def read_pairs(path: str | Path) -> list[SentencePair]:
    """Read the pairs of a parallel corpus. Raises InputError naming the first bad line.

    A file has lines of `origin<TAB>source<TAB>target`, or of `source<TAB>target`; then the origin
    is the file's name. `folder/name.{en,fr}.gz` stands for two files with one sentence a line; then
    the origin is their folder.
    """
    sides = PARALLEL.fullmatch(Path(path).name)
    if sides is None:
        return list(_read_tabbed(path))
    before, *languages, after = sides.groups()
    return _parallel([Path(path).parent / f"{before}{language}{after}" for language in languages])


def _parallel(paths: list[Path]) -> list[SentencePair]:
    source, target = (read_text(path).removesuffix("\n").split("\n") for path in paths)
    if len(source) != len(target):
        raise InputError(
            f"{paths[0]} has {len(source)} lines and {paths[1]} has {len(target)}: "
            f"they are not translations of each other line by line"
        )
    origin = paths[0].absolute().parent.name
    return [SentencePair(origin, s.strip(), t.strip()) for s, t in zip(source, target, strict=True)]


def _read_tabbed(path: str | Path) -> Iterator[SentencePair]:
    name, num_fields = Path(path).name.split(".")[0], None
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line:
            continue
        fields = line.split("\t")
        num_fields = num_fields or (2 if len(fields) == 2 else 3)
        if len(fields) == 1:
            raise InputError(
                f"{path}:{number}: there is no tab; a line is a sentence, a tab and its translation"
            )
        if len(fields) != num_fields:
            expected = ("source and target", "origin, source and target")[num_fields - 2]
            raise InputError(
                f"{path}:{number}: expected {expected} separated by tabs, "
                f"found {len(fields)} fields"
            )
        yield SentencePair(*fields) if num_fields == 3 else SentencePair(name, *fields)


def read_documents(path: str | Path) -> list[str]:
    """Read documents: the chapters of a book, or the lines of a file with one document a line.

    Where these are too short to hold half of the text, documents are made of its paragraphs, or of
    its lines if no line is blank.
    """
    text = read_text(path)
    parts = CHAPTER.split(text) if CHAPTER.search(text) else text.split("\n")
    documents = [d for d in map(_unwrap, parts) if len(d) >= MIN_DOCUMENT_CHARACTERS]
    if 2 * sum(map(len, documents)) >= len(text):
        return documents
    paragraphs = PARAGRAPH_BREAK.split(text)
    return _join_paragraphs(paragraphs if paragraphs[1:] else text.split("\n"))


def _join_paragraphs(paragraphs: Iterable[str]) -> list[str]:
    """Join paragraphs that follow each other into documents that are long enough."""
    documents, document, size = [], list[str](), 0
    for paragraph in map(_unwrap, paragraphs):
        document.append(paragraph)
        size += len(paragraph)
        if size >= MIN_DOCUMENT_CHARACTERS:
            documents.append("\n".join(filter(None, document)))
            document, size = [], 0
    return documents


def hold_out(documents: list[str], fraction: float, seed: int) -> tuple[list[str], list[str]]:
    """Split documents into (training, held out), the same way for the same seed."""
    order = list(range(len(documents)))
    random.Random(seed).shuffle(order)
    held_out = set(order[: max(1, round(fraction * len(order)))])
    return (
        [d for i, d in enumerate(documents) if i not in held_out],
        [d for i, d in enumerate(documents) if i in held_out],
    )


def hold_out_pairs(
    pairs: Sequence[SentencePair], fraction: float
) -> tuple[list[SentencePair], list[SentencePair], list[SentencePair]]:
    """Split pairs into (training, validation, test); a fraction each for the last two.

    The hashes of sources decide, so that every run holds out the same, and no source is in two.
    """
    sources = sorted({pair.source for pair in pairs}, key=_hash)
    size = max(1, round(fraction * len(sources)))
    dev, test = set(sources[:size]), set(sources[size : 2 * size])
    return (
        [pair for pair in pairs if pair.source not in dev | test],
        [pair for pair in pairs if pair.source in dev],
        [pair for pair in pairs if pair.source in test],
    )


def _hash(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def _unwrap(text: str) -> str:
    paragraphs = (" ".join(p.split()) for p in PARAGRAPH_BREAK.split(text))
    return "\n".join(p for p in paragraphs if p)


MOST_READ = 1024  # tokens; models that can read more are scored so


@dataclass(frozen=True)
class ProseWindow:
    """Consecutive tokens of a text. The first `num_known` are read and not predicted."""

    token_ids: list[int]
    num_known: int


# Of alike windows: minus the log-probabilities of what is not known [windows, tokens].
Nats = Callable[[Sequence[ProseWindow]], NDArray[np.float64]]


@dataclass(frozen=True)
class DocumentScore:
    """bits: of all tokens of the document."""

    bytes: int
    bits: float


@dataclass(frozen=True)
class ProseScore:
    """window, stride: in tokens.
    by_document: scores in the order of the documents.
    """

    documents: int
    bytes: int
    tokens: int
    bits_per_byte: float
    perplexity: float
    window: int
    stride: int
    by_document: tuple[DocumentScore, ...]

    def as_sentence(self) -> str:
        return (
            f"{self.documents} documents, {self.bytes:,} bytes, {self.tokens:,} tokens;"
            f" windows of {self.window} tokens that advance by {self.stride}."
        )


@dataclass(frozen=True)
class ProseReader:
    """Cuts texts into windows that a language model can read.

    most_read: tokens, including the model's prefix.
    """

    tokenizer: Tokenizer
    added: AddedTokens
    most_read: int

    def score(self, documents: list[str], nats: Nats) -> ProseScore:
        """Score documents with the negative log-likelihoods that `nats` computes of windows."""
        prefix, end = self.added.prompt_prefix, self.added.stop[:1]
        texts = [[*ids, *end] for ids in encode_all(self.tokenizer, documents)]
        stream = [token for text in texts for token in text]
        window = min(self.most_read, MOST_READ) - len(prefix) + 1  # the last one is not read
        stride = max(1, window // 2)
        num_unseen = 0 if prefix else 1
        cut = windows(stream, window, stride, num_unseen)
        parts = [nats(list(alike)).ravel() for _, alike in groupby(cut, key=_shape)]
        costs = np.concatenate([np.zeros(num_unseen), *parts]) / math.log(2)
        ends = list(accumulate(map(len, texts)))[:-1]
        sizes = [len(document.encode()) for document in documents]
        total, tokens, num_bytes = costs.sum(), len(stream) - num_unseen, sum(sizes)
        return ProseScore(
            documents=len(documents),
            bytes=num_bytes,
            tokens=tokens,
            bits_per_byte=round(total / num_bytes, 4),
            perplexity=round(2 ** (total / tokens), 3),
            window=window,
            stride=stride,
            by_document=tuple(
                DocumentScore(size, round(float(bits.sum()), 1))
                for size, bits in zip(sizes, np.split(costs, ends), strict=True)
            ),
        )


def windows(stream: list[int], length: int, stride: int, num_unseen: int) -> list[ProseWindow]:
    """Cut a stream so that each token is predicted once, except the first `num_unseen`."""
    windows = [ProseWindow(stream[:length], num_unseen)]
    end = length
    while end < len(stream):
        last_end, end = end, min(end + stride, len(stream))
        start = max(0, end - length)
        windows.append(ProseWindow(stream[start:end], last_end - start))
    return windows


def table(scores: dict[str, ProseScore]) -> str:
    """Return a Markdown table of scores by name."""
    rows = ["| | bits per byte | perplexity per token |", "|---|---:|---:|"]
    rows += [f"| {n} | {s.bits_per_byte:.3f} | {s.perplexity:.2f} |" for n, s in scores.items()]
    return "\n".join(rows)


def _shape(window: ProseWindow) -> tuple[int, int]:
    return len(window.token_ids), window.num_known


WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


FEWEST = 5  # times in any writing: of names that were seen less often most come out as others


FEWEST_SMALL = 2  # times in small letters: a word, if a rare one, is no name


MOST_COPIED = 1000  # times: a name that is seen more often comes out as it should


COPIED = 0.85  # of the times that a name is seen: it has no other form in the target


ENDS = ".!?…:"  # of sentences: the word after one has a capital in any case


def known_words(pairs: Iterable[SentencePair]) -> list[str]:
    """Return the words that occur often enough in sources, in their most frequent spelling, sorted.
    Names that targets nearly always copy are left out, unless they are very frequent: other names
    are better copied.

    The first word of a sentence does not count for the spelling, because it is always capitalised.
    """
    written: Counter[str] = Counter()
    within: Counter[str] = Counter()
    copied: Counter[str] = Counter()
    for pair in pairs:
        targets = set(WORD.findall(pair.target))
        for match in WORD.finditer(pair.source):
            word, before = match.group(), pair.source[: match.start()].rstrip()
            written[word] += 1
            within[word] += bool(before) and before[-1] not in ENDS
            copied[word.lower()] += word in targets
    counts: Counter[str] = Counter()
    usual: dict[str, str] = {}
    for word, count in written.items():
        small = word.lower()
        counts[small] += count
        best = usual.setdefault(small, word)
        usual[small] = max(word, best, key=lambda form: (within[form], form == small))

    def is_known(small: str) -> bool:
        is_name = usual[small] != small and counts[small] < MOST_COPIED
        if is_name and copied[small] >= COPIED * counts[small]:
            return False
        return counts[small] >= FEWEST or written[small] >= FEWEST_SMALL

    return sorted(usual[small] for small in counts if is_known(small))
