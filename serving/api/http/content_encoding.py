"""Decode the bodies of requests that a client has compressed (RFC 9110, 8.4).

Every step is done in pieces: neither the body nor what is between two codings is ever larger than
the limit of a plain body, whatever a small one would unpack to.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence

from starlette.types import Message, Receive

from serving.errors import CONTENT_ENCODING, RequestError, TooLarge, WrongMediaType

ENCODINGS = ("gzip", "deflate")
_GZIP = ENCODINGS[0]
_ALIASES = {"x-gzip": _GZIP}
_MAX_CODINGS = 2  # more have no use, and each may unpack to the limit
_PIECE_BYTES = 2**18  # decoded at once: so much memory does a small body take that unpacks to a lot


def codings_of(values: Iterable[str]) -> list[str]:
    """Return the codings in the order in which they were applied. values: of all headers
    `Content-Encoding`. Raises WrongMediaType for those that cannot be decoded here.
    """
    names = (name.strip().lower() for value in values for name in value.split(","))
    codings = [_ALIASES.get(name, name) for name in names if name not in ("", "identity")]
    unknown = [coding for coding in codings if coding not in ENCODINGS]
    if unknown or len(codings) > _MAX_CODINGS:
        message = f"must be {' or '.join(ENCODINGS)}, at most {_MAX_CODINGS} of them, or none"
        raise WrongMediaType(CONTENT_ENCODING, ", ".join(unknown or codings), message)
    return codings


def decode_body(receive: Receive, codings: Sequence[str], max_bytes: int) -> Receive:
    """Return a function that receives a body decoded.

    It raises RequestError for data that is damaged or cut short, and TooLarge if what one of the
    codings holds has more than `max_bytes`.
    """
    decoders = [_ContentDecoder(coding, max_bytes) for coding in reversed(codings)]
    pieces: Iterator[bytes] = iter(())
    is_received = False

    async def receive_decoded() -> Message:
        nonlocal pieces, is_received
        while (piece := next(pieces, None)) is None:
            if is_received:
                for decoder in decoders:
                    decoder.finish()
                return {"type": "http.request", "body": b"", "more_body": False}
            message = await receive()
            if message["type"] != "http.request":
                return message
            is_received = not message.get("more_body", False)
            pieces = iter([message.get("body", b"")])
            for decoder in decoders:
                pieces = decoder.decode(pieces)
        return {"type": "http.request", "body": piece, "more_body": True}

    return receive_decoded


class _ContentDecoder:
    """Decodes one coding."""

    def __init__(self, coding: str, max_bytes: int) -> None:
        self._coding, self._max_bytes = coding, max_bytes
        self._num_bytes = 0
        self._head = b""
        self._stream = _gzip_stream() if coding == _GZIP else None

    def decode(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield what the next pieces decode to, in pieces of limited size."""
        for piece in pieces:
            self._num_bytes += len(piece)
            if self._num_bytes > self._max_bytes:
                raise TooLarge("body", f"more than {self._max_bytes} bytes", "is too large")
            try:
                yield from self._decode_piece(piece)
            except zlib.error as error:
                raise self._refusal(f"is not valid {self._coding}: {error}") from None

    def finish(self) -> None:
        """Raise RequestError if the data is cut short. A body without a byte is an empty one."""
        if self._num_bytes and not (self._stream and self._stream.eof):
            raise self._refusal(f"is cut short: its {self._coding} data has no end")

    def _decode_piece(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:  # deflate, whose first two bytes say which form it has
            data = self._head = self._head + data
            if len(data) < 2:
                return
            self._stream = zlib.decompressobj(_deflate_window_bits(data))
        while True:
            if self._stream.eof:
                if not data:
                    return
                if self._coding != _GZIP:
                    message = f"has {len(data)} bytes after the end of its {self._coding} data"
                    raise self._refusal(message)
                self._stream = _gzip_stream()  # gzip may have several members
            piece = self._stream.decompress(data, _PIECE_BYTES)
            data = self._stream.unconsumed_tail or self._stream.unused_data
            if piece:
                yield piece
            if not data and len(piece) < _PIECE_BYTES:
                return

    def _refusal(self, message: str) -> RequestError:
        return RequestError("body", f"{CONTENT_ENCODING}: {self._coding}", message)


def _gzip_stream() -> "zlib._Decompress":
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


def _deflate_window_bits(data: bytes) -> int:
    """Return the window bits for `zlib`, negative for data without its header, as some send it."""
    is_zlib = data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2]) % 31 == 0
    return zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS
