"""Opens a `tokenizer.json` with the tokenizers library: for texts as they begin or go on from
others, with special tokens or without.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2

from serving.errors import BundleError, Untokenizable
from serving.text.token_bytes import Spec

_SINGLE_SPACES = [
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": r" \z"}, "content": ""},
]


def without_text_start(tokenizer: Spec) -> dict[str, Any]:
    """Return a `tokenizer.json` without what it does where a text begins."""
    normalizer, pre_tokenizer = (
        _remove_text_start(tokenizer.get(name)) for name in ("normalizer", "pre_tokenizer")
    )
    parts = (tokenizer.get("pre_tokenizer") or {}).get("pretokenizers", ())
    if _parts_words_twice(parts):
        rest = [part for part in parts if part["type"] != "WhitespaceSplit"]
        pre_tokenizer = _remove_text_start({"type": "Sequence", "pretokenizers": rest})
        steps = [normalizer] if normalizer else []
        normalizer = {"type": "Sequence", "normalizers": [*steps, *_SINGLE_SPACES]}
    return {**tokenizer, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}


def _parts_words_twice(parts: Sequence[Spec]) -> bool:
    """Check that words are parted by white space, which a Metaspace after it, that puts a space
    before each, sees no more.
    """
    return {"WhitespaceSplit", "Metaspace"} <= {str(part["type"]) for part in parts}


def _remove_text_start(step: Spec | None) -> Spec | None:
    if step is None or _is_start(step):
        return None
    for name in ("normalizers", "pretokenizers"):
        if name in step:
            parts = map(_remove_text_start, step[name])
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


class LibraryTokenizers:
    """Opens a `tokenizer.json`. Raises BundleError.

    outline: the file's content, but for its vocabulary.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        text = _read(path)
        whole = _open(path, text)
        spec = _complete(path, json.loads(text))
        self._charsmap, rest = _split_charsmap(path, spec)
        self.outline = {**spec, "model": _without_vocabulary(spec["model"])}
        self._text = json.dumps(rest)  # takes a tenth of the memory of what it holds
        self._encoders: dict[tuple[bool, bool], Any] = {}
        if rest is spec:
            self._encoders[False, False] = _configure(whole, parse_special=False)

    def normalise(self, text: str) -> str:
        """Return the text that all tokenizers here take."""
        return text if self._charsmap is None else self._charsmap.normalize(text)

    def normalise_with_origins(self, text: str) -> tuple[str, Sequence[int]]:
        """Return also, for each of its characters and for its end, the place in the text that was
        given.
        """
        if self._charsmap is None:
            return text, range(len(text) + 1)
        normalized: tuple[str, list[int]] = self._charsmap.normalize(text, with_offsets=True)
        return normalized

    def get(self, inside: bool = False, parse_special: bool = False) -> Any:
        """Return a tokenizer, made when it is first needed.

        inside: for a text that goes on from another one.
        """
        encoder = self._encoders.get((inside, parse_special))
        if encoder is None:
            encoder = self._encoders[inside, parse_special] = self._make(inside, parse_special)
        return encoder

    def _make(self, inside: bool, parse_special: bool) -> Any:
        text = self._text
        if inside:
            spec = json.loads(text)
            changed = without_text_start(spec)
            if changed == spec:
                return self.get(False, parse_special)
            text = json.dumps(changed)
        return _configure(_open(self._path, text), parse_special)


@contextmanager
def refusing_tokenizer_errors(value: object) -> Iterator[None]:
    """Turn what the library raises inside, over a text or several, into Untokenizable.

    It raises bare Exception, and it panics, with what is no Exception, where a pattern of the
    tokenizer takes too many steps.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        message = f"the model's tokenizer fails at it: {error}"
        raise Untokenizable("text", value, message) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(path, [f"not a tokenizer: {error}"]) from None


def _complete(path: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a file with all its parts; of a form that the library takes."""
    model = spec["model"]
    if isinstance(model["vocab"], list) and model.get("unk_id") is None:
        raise BundleError(path, ["not a tokenizer: a unigram model needs an unknown token"])
    return {"decoder": None, "normalizer": None, "pre_tokenizer": None, **spec}


def _without_vocabulary(model: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in model.items() if key not in ("vocab", "merges")}


def _configure(encoder: Any, parse_special: bool) -> Any:
    encoder.encode_special_tokens = not parse_special
    encoder.no_truncation()
    encoder.no_padding()
    if getattr(encoder.model, "dropout", None):  # for training
        encoder.model.dropout = None
    return encoder


def _open(path: Path, text: str) -> Any:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare Exception, and panics at some bytes
        raise BundleError(path, [f"not a tokenizer: {error}"]) from None


def _split_charsmap(
    path: Path, spec: dict[str, Any]
) -> tuple[SentencePieceNormalizer | None, dict[str, Any]]:
    """Return the rules of sentencepiece that a text is first normalised by, if there are any, and
    the tokenizer without.

    The library gives a whole cluster of characters what the first of them becomes: of an a with two
        combining marks one is lost.
    """
    normalizer = spec.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    if not steps or steps[0].get("type") != "Precompiled":
        return None, spec
    file_format: Any = sentencepiece_model_pb2  # its classes are made at run time
    proto = file_format.NormalizerSpec(
        add_dummy_prefix=False, remove_extra_whitespaces=False, escape_whitespaces=False
    )
    rest = {"type": "Sequence", "normalizers": steps[1:]}
    without = {**spec, "normalizer": rest if steps[1:] else None}
    try:
        proto.precompiled_charsmap = base64.b64decode(steps[0]["precompiled_charsmap"])
        return SentencePieceNormalizer(normalizer_spec=proto), without
    except (RuntimeError, LookupError, TypeError, ValueError) as error:
        raise BundleError(path, [f"not a tokenizer: {error}"]) from None
