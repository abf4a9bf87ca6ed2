"""Packages of Argos Translate, which LibreTranslate uses, too: `.argosmodel`, or its folder.

    metadata.json  model/  sentencepiece.model or bpe.model  README.md  stanza/

What splits sentences there (`stanza/`, `minisbd/`, `spacy/`) is not read. The defaults of decoding
are those of argostranslate/translate.py.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from export.readers.common.options import Options
from export.readers.common.pieces import PieceOrder, TokenizerError
from export.readers.common.tokenizers import tokenizer_from_sentencepiece
from export.readers.ctranslate2.files import (
    METADATA_FILE,
    MODEL_FOLDER,
    ModelFiles,
    open_package,
    read_content,
    read_object,
)

PIECES_FILE, CODES_FILE, CARD_FILE = "sentencepiece.model", "bpe.model", "README.md"
TRANSLATE = "translate"  # the kind of packages that are read
GENERATION = {"num_beams": 4, "length_penalty": 0.2}
LANGUAGES = {"pb": "pt-BR", "zt": "zh-Hant"}  # codes of LibreTranslate that no standard has


@dataclass(frozen=True)
class Package:
    """A package. kind: `translate`, or what else it is for. languages: source and target.
    target_prefix: a token that every target begins with; empty if there is none.
    """

    files: ModelFiles
    kind: str
    languages: tuple[str, str]
    target_prefix: str
    version: str
    card: bytes
    problems: list[str]
    generation: dict[str, Any] = field(default_factory=lambda: {**GENERATION})

    @property
    def model_files(self) -> ModelFiles:
        return _Below(self.files, f"{MODEL_FOLDER}/")

    @property
    def title(self) -> str:
        return "-".join(self.languages)

    def make_tokenizer(
        self, tokens: list[str], special: list[str], unknown: str, problems: list[str]
    ) -> bytes | None:
        """Return `tokenizer.json` of tokens in the order of their ids; None, and a problem, if it
        cannot be made.
        """
        if PIECES_FILE not in self.files:
            reason = (
                f"{CODES_FILE}: words of Moses with BPE are not supported, {PIECES_FILE} is"
                if CODES_FILE in self.files
                else f"{PIECES_FILE} is missing"
            )
            problems.append(reason)
            return None
        pieces = read_content(self.files, PIECES_FILE, bytes, problems)
        ids = {token: token_id for token_id, token in enumerate(tokens)}
        try:
            return tokenizer_from_sentencepiece(
                pieces or b"", PieceOrder(ids=ids, special=special, unknown=unknown)
            )
        except TokenizerError as error:
            problems += [f"{PIECES_FILE}: {problem}" for problem in error.problems]
        return None


class _Below:
    """The files in one folder of others."""

    def __init__(self, files: ModelFiles, folder: str) -> None:
        self._files, self._folder = files, folder

    def __contains__(self, name: str) -> bool:
        return self._folder + name in self._files

    def read(self, name: str) -> bytes:
        return self._files.read(self._folder + name)

    def map(self, name: str) -> Any:
        return self._files.map(self._folder + name)


def read_package(path: Path) -> Package:
    """Read what a package says of itself. Raises CheckpointError if it is no package; what is wrong
    with it is in its `problems`.
    """
    files = open_package(path)
    problems: list[str] = []
    options = Options(METADATA_FILE, read_object(files, METADATA_FILE, problems), problems)
    kind = options.word("type", TRANSLATE)
    options.only("type", TRANSLATE)
    codes = tuple(options.word(name) for name in ("from_code", "to_code"))
    source, target = (LANGUAGES.get(code, code) for code in codes)
    card = b""
    if CARD_FILE in files:
        card = read_content(files, CARD_FILE, bytes, problems) or b""
    return Package(
        files,
        kind,
        (source, target),
        options.word("target_prefix", ""),
        str(options.get("package_version", "")),
        card,
        problems,
    )
