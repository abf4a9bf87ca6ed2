"""Writes a token as text for an answer, and reads that text back as bytes."""

import re

BytesOrId = bytes | int  # a token's bytes, or its id where the tokenizer has no token of that id
_OF_BYTES = re.compile(r"bytes:((?:\\x[0-9a-f]{2})+)")


def token_text(token: BytesOrId) -> str:
    """Return a token's text; one that is part of a character is written as OpenAI does, one
    that has only an id as vLLM does.
    """
    if isinstance(token, int):
        return f"token_id:{token}"
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def parse_token_text(text: str) -> bytes:
    """Return the bytes of a token from what `token_text` returned for it; for a token that has only
    an id, the bytes of that text.
    """
    match = _OF_BYTES.fullmatch(text)
    return bytes.fromhex(match[1].replace("\\x", "")) if match else text.encode()
