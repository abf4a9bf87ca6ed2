"""Text to token ids and back, by the bundle's own `tokenizer.json` (byte-level BPE).

Special tokens are never read from text: a literal "</s>" is six characters. They are put around
a request's ids by the pipelines, as the bundle's manifest says.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers

from serving.errors import BundleError


class Tokenizer:
    """Round-trips every valid Unicode string: `decode(encode(text)) == text`."""

    def __init__(self, path: Path) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise BundleError(path, [f"not a tokenizer: {error}"]) from None
        if not isinstance(self._tokenizer.decoder, tokenizers.decoders.ByteLevel):
            raise BundleError(path, ["only byte-level tokenizers are supported"])
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._token_bytes = _token_bytes(self._tokenizer)

    @property
    def vocab_size(self) -> int:
        return len(self._token_bytes)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [list(encoding.ids) for encoding in encodings]

    def token_bytes(self, token_id: int) -> bytes:
        """UTF-8 bytes a token stands for, perhaps part of a character; none if special."""
        return self._token_bytes[token_id]

    def decode(self, token_ids: Iterable[int]) -> str:
        """Bytes that are not UTF-8 become U+FFFD, exactly as a `Detokenizer` streams them."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", errors="replace")


def _token_bytes(tokenizer: tokenizers.Tokenizer) -> list[bytes]:
    """The bytes of every token id."""
    byte_of = {character: byte for byte, character in enumerate(_byte_characters())}
    special = {
        token_id for token_id, t in tokenizer.get_added_tokens_decoder().items() if t.special
    }
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, token_id in vocabulary.items():
        if token_id not in special:
            table[token_id] = bytes(byte_of[character] for character in token)
    return table


def _byte_characters() -> list[str]:
    """GPT-2's printable character for each byte: itself where printable, else 256 upwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]
