"""Finds the tokens of Whisper's transcripts by their names in a tokenizer (Radford et al. 2022)."""

import re
from collections.abc import Mapping
from typing import Any

MULTILINGUAL_WORDS = 51865  # the least that vocabularies of several languages have

_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
_NEWER_CODES = {"iw": "he"}  # openai/whisper renamed it, the tokens of its first tokenizers stayed
_NAMES = {
    "start": ("<|startoftranscript|>",),
    "previous": ("<|startofprev|>",),
    "no_speech": ("<|nospeech|>", "<|nocaptions|>"),  # the second is its first name
    "no_timestamps": ("<|notimestamps|>",),
}
_TASKS = {"transcribe": ("<|transcribe|>",), "translate": ("<|translate|>",)}


def read_transcript_tokens(
    ids: Mapping[str, int], problems: list[str], *, is_multilingual: bool
) -> dict[str, Any]:
    """Return options of ours that name tokens: `bos_id`, the languages, and those of `audio`.
    A token that is missing is a problem.

    ids: of all tokens by name. is_multilingual: whether transcripts begin with a language and a
    task; the tokenizers of English models have these tokens, too.
    """
    audio: dict[str, Any] = {}
    names = _NAMES | (_TASKS if is_multilingual else {})
    for option, candidates in names.items():
        token_id = next((ids[name] for name in candidates if name in ids), None)
        if token_id is None:
            problems.append(f"tokenizer: the token {candidates[0]} is missing")
        else:
            audio[option] = token_id
    if len(audio) < len(names):
        return {}
    start = audio.pop("start")
    # Tokenizers without tokens of times leave their ids free.
    audio["first_timestamp"] = ids.get("<|0.00|>", audio["no_timestamps"] + 1)
    if not is_multilingual:
        return {"bos_id": start, "audio": audio, **list_languages(["en"])}
    languages = {
        _NEWER_CODES.get(match[1], match[1]): token_id
        for name, token_id in sorted(ids.items(), key=lambda item: item[1])
        if (match := _LANGUAGE.fullmatch(name)) and start < token_id < audio["no_timestamps"]
    }
    audio["languages"] = languages
    return {"bos_id": start, "audio": audio, **list_languages([*languages])}


def list_languages(codes: list[str]) -> dict[str, list[str]]:
    """Return the languages that are heard and written: speech can be translated into English."""
    return {"source_languages": codes, "target_languages": codes}
