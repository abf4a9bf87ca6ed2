"""Writes the mock server's bytes: whole answers and streams of every protocol, and errors."""

import json
from typing import Any

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many", 500: "Error"}
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_WORD = " mot"
TEXT_FIELDS = {
    "/translate": "q",
    "/v2/translate": "text",
    "/v1/completions": "prompt",
    "/v1/chat/completions": "messages",
}


def whole(status: int, content: Any) -> bytes:
    """Return an answer: text as it is, anything else as JSON."""
    is_text = isinstance(content, str)
    body = content.encode() if is_text else json.dumps(content).encode()
    kind = "text/plain" if is_text else "application/json"
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: {kind}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def answer(path: str, num_tokens: int) -> bytes:
    text = (_WORD * num_tokens).strip()
    usage = {"prompt_tokens": 5, "completion_tokens": num_tokens}
    contents: dict[str, Any] = {
        "/translate": {"translatedText": text},
        "/v2/translate": {"translations": [{"detected_source_language": "EN", "text": text}]},
        "/v1/completions": {"choices": [{"index": 0, "text": text}], "usage": usage},
        "/v1/chat/completions": {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
            "usage": usage,
        },
    }
    return whole(200, contents[path])


def stream_head(path: str) -> bytes:
    """Return the head, with what comes before the first text: a comment, and a chat's role."""
    start = b": ping\n\n"
    if "chat" in path:
        start += _event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
    return _STREAM_HEAD + _chunked(start)


def token(path: str) -> bytes:
    choice = {"delta": {"content": _WORD}} if "chat" in path else {"text": _WORD}
    return _chunked(_event({"id": "mock", "choices": [{"index": 0, **choice}]}))


def stream_end(num_tokens: int) -> bytes:
    usage = {"prompt_tokens": 5, "completion_tokens": num_tokens}
    return _chunked(_event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n") + END


def late_error() -> bytes:
    return _chunked(_event({"error": {"message": "the engine has stopped"}})) + END


END = b"0\r\n\r\n"  # of a chunked body


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
