"""Reads fairseq's dictionaries: `dict.<language>.txt` beside the checkpoint, a word and its
count a line.

Four special words come before those of the file (fairseq/data/dictionary.py).
"""

from pathlib import Path

from models.storage.files import read_text

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
PAD, EOS, UNK = 1, 2, 3
OVERWRITE = "#fairseq:overwrite"  # the word is there twice, and the later one counts


def read_dictionary(path: Path, problems: list[str]) -> list[str]:
    """Read all words by their ids; none, and a problem, if the file is missing or damaged."""
    try:
        lines = read_text(path).splitlines()
        return [*SPECIAL, *_words(lines)]
    except FileNotFoundError:
        problems.append(f"{path.name} is missing beside the checkpoint")
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
    return []


def _words(lines: list[str]) -> list[str]:
    words: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        is_again = line.endswith(OVERWRITE)
        word, _, count = line.removesuffix(OVERWRITE).rstrip().rpartition(" ")
        if not word or not count.isdecimal():
            raise ValueError(f"line {number} is not a word and its count")
        if word in words and not is_again:
            raise ValueError(f"line {number} has a word for the second time")
        words[word] = None
    return [word for word in words if word not in SPECIAL]
