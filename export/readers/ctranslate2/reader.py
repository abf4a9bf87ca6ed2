"""Folders of CTranslate2, and packages of Argos Translate and LibreTranslate, as checkpoints.

    model.bin  config.json  shared_vocabulary.json, or source_ and target_, or .txt

A package has such a folder `model/`, and beside it `metadata.json` with the languages, and the
pieces of sentencepiece.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from export.readers.common.checkpoint_files import checkpoint_files, write_card
from export.readers.common.cursor import MalformedFile
from export.readers.common.options import Options
from export.readers.common.word_tokenizers import tokenizer_from_vocabulary
from export.readers.ctranslate2.argos import Package, read_package
from export.readers.ctranslate2.container import ModelFile, read_model_file
from export.readers.ctranslate2.files import (
    MODEL_FILE,
    FolderFiles,
    ModelFiles,
    is_package,
    read_object,
)
from export.readers.ctranslate2.language_model import read_language_model
from export.readers.ctranslate2.translator import Translator
from export.readers.ctranslate2.vocabularies import (
    read_added_tokens,
    read_tokenizer,
    read_tokens,
)
from export.readers.ctranslate2.whisper import read_whisper
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.checkpoint import TOKENIZER_FILE, UNKNOWN_LANGUAGE, Checkpoint, CheckpointError
from models.conventions import Conventions
from models.safetensors import Arrays

CONFIG_FILE = "config.json"
TRANSLATORS = ("TransformerSpec", "TransformerBase", "TransformerBig")
LANGUAGE_MODELS = ("TransformerDecoderSpec",)
SPEECH_MODELS = ("WhisperSpec",)
HEADS = {"TransformerBase": 8, "TransformerBig": 16}  # of old files, which do not say it
SHARED, SOURCE, TARGET = (f"{side}_vocabulary" for side in ("shared", "source", "target"))
SPECIAL = ("<unk>", "<blank>", "<pad>", "<s>", "</s>")
PAD = ("<blank>", "<pad>")
# of NLLB, mBART and M2M-100
LANGUAGE_TOKEN = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}|__[a-z]{2,3}__")


def can_read(path: Path) -> bool:
    """Return whether a path is a folder of CTranslate2, its `model.bin`, or a package."""
    try:
        return is_package(path) or _is_model(path / MODEL_FILE if path.is_dir() else path)
    except OSError:
        return False


def _is_model(path: Path) -> bool:
    """Marian's models may have this name, too: they begin with a 1 of eight bytes."""
    if path.name != MODEL_FILE or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(8)
    return 1 <= int.from_bytes(start[:4], "little") < 256 and any(start[4:])


def read_checkpoint(path: Path, context_length: int | None = None) -> Checkpoint:
    """Read a model, its weights still unread. Raises CheckpointError with every problem.

    context_length: the most tokens that a language model shall read, if not as many as it could.
    """
    package = read_package(path) if is_package(path) else None
    files = package.model_files if package else FolderFiles(path if path.is_dir() else path.parent)
    model = _read_model(path, files)
    if model.specification in LANGUAGE_MODELS and package is None:
        folder = path if path.is_dir() else path.parent
        return read_language_model(path, folder, model, context_length)
    if model.specification in SPEECH_MODELS and package is None and context_length is None:
        return read_whisper(path, path if path.is_dir() else path.parent, model)
    if model.specification not in (*TRANSLATORS, *SPEECH_MODELS):
        kinds = f"{TRANSLATORS[0]}, {LANGUAGE_MODELS[0]} and {SPEECH_MODELS[0]}"
        message = f"{MODEL_FILE} is of {model.specification}: {kinds} are supported"
        raise CheckpointError(path, [message])
    if context_length is not None:
        message = "the context length of a language model alone can be changed"
        raise CheckpointError(path, [message])
    return _TranslatorReader(path, files, model, package).read_checkpoint()


def _read_model(path: Path, files: ModelFiles) -> ModelFile:
    try:
        model = read_model_file(files.map(MODEL_FILE))
    except OSError as error:
        raise CheckpointError(path, [f"{MODEL_FILE} cannot be read: {error.strerror}"]) from None
    except MalformedFile as error:
        raise CheckpointError(path, [f"{MODEL_FILE} {error}"]) from None
    if model.specification in HEADS and "num_heads" not in model.scalars:
        return replace(model, scalars={**model.scalars, "num_heads": HEADS[model.specification]})
    return model


class _TranslatorReader:
    """Reads an encoder-decoder. Everything that is wrong is added to `problems`."""

    def __init__(
        self, path: Path, files: ModelFiles, model: ModelFile, package: Package | None
    ) -> None:
        self._path, self._files = path, files
        self._model, self._package = model, package
        self._problems = [*package.problems] if package else []
        is_new = model.version >= 6
        values = read_object(files, CONFIG_FILE, self._problems, is_required=is_new)
        if not is_new:
            values = {**_read_old_config(model), **values}
        self._starts_from_prefix = values.get("decoder_start_token", "") is None
        self._config = Options(CONFIG_FILE, values, self._problems)
        self._unknown = self._config.word("unk_token", "<unk>")
        self._bos = self._config.word("bos_token", "<s>")
        self._eos = self._config.word("eos_token", "</s>")
        self._translator = Translator(model, self._config)

    def read_checkpoint(self) -> Checkpoint:
        self._raise_problems()
        source, target = self._read_vocabularies()
        values = self._translator.read_options()
        self._raise_problems()
        tokenizers = self._make_tokenizers(source, target)
        conventions = self._read_conventions(source, target, tokenizers[0])
        self._raise_problems()
        pad = next((target.index(token) for token in PAD if token in target), conventions.stop[0])
        config = self._make_config(values, conventions, pad)
        weights = self._translator.read_weights(config)
        self._raise_problems()
        return Checkpoint(
            self._path,
            config,
            Arrays(weights),
            conventions,
            checkpoint_files(self._write_card(config), *tokenizers),
            bits=self._model.bits,
        )

    @property
    def _folder(self) -> Path:
        return self._path if self._path.is_dir() else self._path.parent

    def _raise_problems(self) -> None:
        if self._problems:
            raise CheckpointError(self._path, list(dict.fromkeys(self._problems)))

    def _read_vocabularies(self) -> tuple[list[str], list[str]]:
        sizes = self._translator.source_size, self._translator.target_size
        is_shared = any(f"{SHARED}.{suffix}" in self._files for suffix in ("json", "txt"))
        source, target = (
            read_tokens(self._files, stem, size, self._unknown, self._problems)
            for stem, size in zip(
                (SHARED,) * 2 if is_shared else (SOURCE, TARGET), sizes, strict=True
            )
        )
        return source, target

    def _make_tokenizers(self, source: list[str], target: list[str]) -> tuple[bytes, bytes | None]:
        if self._package is None and TOKENIZER_FILE in self._files:
            tokenizer = read_tokenizer(self._files, (source, target), self._problems)
            return tokenizer or b"", None
        special_tokens = {self._unknown, self._bos, self._eos, *SPECIAL}
        if self._package:
            special_tokens.add(self._package.target_prefix)
        sides = {"source": source} if source == target else {"source": source, "target": target}
        tokenizers = [
            self._make_tokenizer(
                tokens, [token for token in tokens if token in special_tokens], side
            )
            for side, tokens in sides.items()
        ]
        self._raise_problems()
        first, *others = (tokenizer or b"" for tokenizer in tokenizers)
        return first, next(iter(others), None)

    def _make_tokenizer(self, tokens: list[str], special: list[str], side: str) -> bytes | None:
        if self._package:
            return self._package.make_tokenizer(tokens, special, self._unknown, self._problems)
        return tokenizer_from_vocabulary(
            tokens, special, self._unknown, self._folder, side, self._problems
        )

    def _read_conventions(
        self, source: list[str], target: list[str], tokenizer: bytes
    ) -> Conventions:
        """Read the tokens around texts.

        What CTranslate2 does not add to sources, its users do: the tokens of their tokenizer, or
        the </s> with which sources of Marian always end.
        """
        self._refuse_many_languages(target)
        flag, starts_from_zeros = self._config.flag, self._translator.starts_from_zeros
        has_bos = flag("add_source_bos", False)
        has_eos = flag("add_source_eos", False) or starts_from_zeros
        source_prefix, source_suffix = tuple[int, ...](), tuple[int, ...]()
        if has_bos:
            source_prefix = (self._find_token(source, self._bos, "bos_token"),)
        if has_eos:
            source_suffix = (self._find_token(source, self._eos, "eos_token"),)
        if not has_bos and not has_eos and TOKENIZER_FILE in self._files:
            source_prefix, source_suffix = read_added_tokens(tokenizer, self._problems)
        start = len(target) if starts_from_zeros else self._find_start(target)
        prompt_prefix: tuple[int, ...] = (start,)
        if self._package and self._package.target_prefix:
            prefix = self._package.target_prefix
            prompt_prefix = (start, self._find_token(target, prefix, "target_prefix"))
        return Conventions(
            source_prefix=source_prefix,
            source_suffix=source_suffix,
            prompt_prefix=prompt_prefix,
            stop=(self._find_token(target, self._eos, "eos_token"),),
            unk=target.index(self._unknown) if self._unknown in target else None,
            generation=self._package.generation if self._package else {},
        )

    def _refuse_many_languages(self, target: list[str]) -> None:
        """Add a problem if targets must begin with the token of a language that nobody names."""
        languages = [token for token in target if LANGUAGE_TOKEN.fullmatch(token)]
        has_prefix = self._package is not None and self._package.target_prefix
        if self._starts_from_prefix or (len(languages) > 1 and not has_prefix):
            examples = f" ({', '.join(languages[:3])} ...)" if languages else ""
            self._problems.append(
                f"models whose targets begin with a language{examples} are not supported, but the"
                " Hugging Face folders that they were converted from are"
            )

    def _find_start(self, target: list[str]) -> int:
        if self._starts_from_prefix:
            return 0
        token = self._config.word("decoder_start_token", self._bos)
        return self._find_token(target, token, "decoder_start_token")

    def _find_token(self, tokens: list[str], token: str, option: str) -> int:
        if token in tokens:
            return tokens.index(token)
        self._problems.append(f"{option} {token!r} is not in the vocabulary")
        return 0

    def _make_config(self, values: dict[str, Any], conventions: Conventions, pad: int) -> AnyConfig:
        translator, package = self._translator, self._package
        source, target = package.languages if package else (UNKNOWN_LANGUAGE,) * 2
        # The vector of zeros that Marian starts from is a token.
        num_added = int(translator.starts_from_zeros)
        try:
            return parse_config(
                {
                    **values,
                    "vocab_size": translator.target_size + num_added,
                    "source_vocab_size": None
                    if values["tied_embeddings"]
                    else translator.source_size,
                    "source_languages": (source,),
                    "target_languages": (target,),
                    "pad_id": pad,
                    "bos_id": conventions.prompt_prefix[0],
                    "eos_id": conventions.stop[0],
                }
            )
        except ModelConfigError as error:
            raise CheckpointError(self._path, [*self._problems, *error.problems]) from None

    def _write_card(self, config: AnyConfig) -> bytes:
        name = self._path.resolve().name
        facts = [f"Vocabulary: {config.vocab_size:,} tokens"]
        if self._model.bits:
            facts.append(f"Weights: int{self._model.bits}, with a scale for each row")
        if self._package is None:
            origin = f"Imported from the CTranslate2 model `{name}`, which says nothing"
            return write_card(name, f"{origin} about its licence.", *facts)
        origin = f"Imported from `{name}`, a package of Argos Translate"
        version = f" (version {self._package.version})" if self._package.version else ""
        card = write_card(self._package.title, f"{origin}{version}.", *facts)
        return card + b"\n" + self._package.card if self._package.card else card


def _read_old_config(model: ModelFile) -> dict[str, Any]:
    """Return what files before version 6 say in `model.bin`, by the names of `config.json`."""
    values: dict[str, Any] = {
        name: text
        for name, text in model.texts.items()
        if name in ("unk_token", "bos_token", "eos_token")
    }
    for name in ("source_bos", "source_eos"):
        values[f"add_{name}"] = bool(model.scalars.get(f"with_{name}", 0))
    if model.scalars.get("user_decoder_start_tokens", 0):
        values["decoder_start_token"] = None
    elif not model.scalars.get("with_target_bos", 1):
        values["decoder_start_token"] = values.get("eos_token", "</s>")
    return values
