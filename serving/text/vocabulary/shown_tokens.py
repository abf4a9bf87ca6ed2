"""Writes single tokens as clients are shown them, parts of characters and nameless ids included."""

Shown = bytes | int  # a token's bytes, or its id where the tokenizer has no token of that id


def spelt(token: Shown) -> str:
    """Return a token's text; one that is part of a character is spelt as OpenAI spells it, one
    that has only an id as vLLM does.
    """
    if isinstance(token, int):
        return f"token_id:{token}"
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)
