"""Makes the library's tokenizers of one `tokenizer.json`: for texts that begin or go on, with
special tokens read from them or not.
"""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2

from serving.errors import BundleError, Untokenizable
from serving.text.vocabulary.word_starts import inside_a_text


class Encoders:
    """Opens a `tokenizer.json`. Raises BundleError.

    normalise: comes before all of its tokenizers.
    outline: the file's content, but for its vocabulary.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        text = _read(path)
        whole = _open(path, text)
        spec = _complete(path, json.loads(text))
        self.normalise, rest = _charsmap_apart(path, spec)
        self.outline = {**spec, "model": _without_vocabulary(spec["model"])}
        self._text = json.dumps(rest)  # takes a tenth of the memory of what it holds
        self._made: dict[tuple[bool, bool], Any] = {}
        if rest is spec:
            self._made[False, False] = _as_asked(whole, parse_special=False)

    def get(self, inside: bool = False, parse_special: bool = False) -> Any:
        """Return a tokenizer, made when it is first needed.

        inside: for a text that goes on from another one.
        """
        encoder = self._made.get((inside, parse_special))
        if encoder is None:
            encoder = self._made[inside, parse_special] = self._make(inside, parse_special)
        return encoder

    def _make(self, inside: bool, parse_special: bool) -> Any:
        text = self._text
        if inside:
            spec = json.loads(text)
            changed = inside_a_text(spec)
            if changed == spec:
                return self.get(False, parse_special)
            text = json.dumps(changed)
        return _as_asked(_open(self._path, text), parse_special)


@contextmanager
def reading(value: object) -> Iterator[None]:
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


def _as_asked(encoder: Any, parse_special: bool) -> Any:
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


def _charsmap_apart(
    path: Path, spec: dict[str, Any]
) -> tuple[Callable[[str], str], dict[str, Any]]:
    """Return the rules of sentencepiece that a text is first normalised by, and the tokenizer
    without.

    The library gives a whole cluster of characters what the first of them becomes: of an a with two
        combining marks one is lost.
    """
    normalizer = spec.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    if not steps or steps[0].get("type") != "Precompiled":
        return str, spec
    file_format: Any = sentencepiece_model_pb2  # its classes are made at run time
    proto = file_format.NormalizerSpec(
        add_dummy_prefix=False, remove_extra_whitespaces=False, escape_whitespaces=False
    )
    rest = {"type": "Sequence", "normalizers": steps[1:]}
    without = {**spec, "normalizer": rest if steps[1:] else None}
    try:
        proto.precompiled_charsmap = base64.b64decode(steps[0]["precompiled_charsmap"])
        return SentencePieceNormalizer(normalizer_spec=proto).normalize, without
    except (RuntimeError, LookupError, TypeError, ValueError) as error:
        raise BundleError(path, [f"not a tokenizer: {error}"]) from None
