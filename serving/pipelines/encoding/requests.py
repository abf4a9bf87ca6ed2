"""Builds the engine's requests of jobs for models that only encode, each once and whole.

The service, the offline commands and the bench build them here, so that what is measured is what
is served.
"""

from collections.abc import Sequence

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.parameters import TokenIds
from serving.pipelines.encoding.job import EncodeJob, Input, Pair
from serving.request import GenerationRequest
from serving.text.plain_text import tokenizing
from serving.text.tokenizer import Tokenizer

Framed = tuple[TokenIds, int | None]  # ids, and where the second text of a pair begins


class EncodingRequests:
    """Builds the requests of one bundle's jobs; needs no engine."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        assert manifest.encoder is not None and manifest.limits.max_source_tokens is not None
        self._encoder = manifest.encoder
        self._most = manifest.limits.max_source_tokens
        self._prefix, self._suffix = manifest.tokens.source_prefix, manifest.tokens.source_suffix
        self._tokenizer = tokenizer

    def of(self, job: EncodeJob) -> list[GenerationRequest]:
        """Return a request for each input. Raises RequestError."""
        decoding = job.decoding
        return [
            GenerationRequest(
                f"{job.request_id}-{number}",
                ids,
                pair_start=pair_start,
                looks=job.looks,
                priority=decoding.priority,
                timeout_seconds=decoding.timeout_seconds,
                job_id=job.request_id,
                share=decoding.share,
            )
            for number, (ids, pair_start) in enumerate(self._framed(job))
        ]

    def framed(self, ids: TokenIds) -> TokenIds:
        """Return the tokens of a text as the model reads them, special ones around it."""
        return (*self._prefix, *ids, *self._suffix)

    def _framed(self, job: EncodeJob) -> list[Framed]:
        most = min(job.max_tokens or self._most, self._most)
        tokens = self._tokenized(job.inputs, self._prompt(job.prompt_name))
        framed: list[Framed] = []
        for number, (given, parts) in enumerate(zip(job.inputs, tokens, strict=True)):
            num_special = 0 if isinstance(given, tuple) else self._num_special(len(parts))
            num_tokens = sum(map(len, parts)) + num_special
            if job.max_tokens is None and num_tokens > most:
                which = "this" if len(job.inputs) == 1 else f"number {number}"
                raise _too_long(which, num_tokens, most)
            if most < num_special + len(parts):
                message = f"must be at least {num_special + len(parts)}, special tokens included"
                raise RequestError("max_tokens", job.max_tokens, message)
            cut = _cut(parts, most - num_special)
            framed.append((cut[0], None) if isinstance(given, tuple) else self._joined(cut))
        return framed

    def _prompt(self, name: str | None) -> str:
        prompts = self._encoder.prompts
        name = self._encoder.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in prompts:
            known = ", ".join(sorted(prompts)) or "none"
            raise RequestError("prompt_name", name, f"the model has no such prompt; it has {known}")
        return prompts[name]

    def _tokenized(self, inputs: Sequence[Input], prompt: str) -> list[list[TokenIds]]:
        """Return the tokens of each input, of a pair those of each text; without special ones."""
        texts: list[str] = []
        for each in inputs:
            if isinstance(each, Pair):
                self._check_takes_pairs()
                texts += [each.first, each.second]
            elif isinstance(each, str):
                texts.append(prompt + each)
        with tokenizing("inputs"):
            found = iter(self._tokenizer.encode_batch(texts) if texts else [])
        return [
            [each] if isinstance(each, tuple) else [tuple(next(found)) for _ in range(_texts(each))]
            for each in inputs
        ]

    def _check_takes_pairs(self) -> None:
        if self._encoder.separator is None:
            raise RequestError("inputs", "a pair of texts", "this model reads one text, not two")

    def _num_special(self, num_texts: int) -> int:
        separator = self._encoder.separator or ()
        return len(self._prefix) + len(self._suffix) + (num_texts - 1) * len(separator)

    def _joined(self, parts: Sequence[TokenIds]) -> Framed:
        first, *others = parts
        if not others:
            return self.framed(first), None
        head = (*self._prefix, *first, *(self._encoder.separator or ()))
        return (*head, *others[0], *self._suffix), len(head)


def _texts(given: Input) -> int:
    return 2 if isinstance(given, Pair) else 1


def _cut(parts: Sequence[TokenIds], room: int) -> list[TokenIds]:
    """Cut texts to so many tokens together: of a pair the longer one, then both to halves, as
    Hugging Face's tokenizers do (longest first).
    """
    if len(parts) == 1 or sum(map(len, parts)) <= room:
        return [part[:room] for part in parts]
    shorter = min(parts, key=len)
    num_shorter = min(len(shorter), room // 2)
    return [part[: num_shorter if part is shorter else room - num_shorter] for part in parts]


def _too_long(which: str, num_tokens: int, most: int) -> RequestError:
    message = f"the model reads {most} tokens, and {which} has {num_tokens - most} more"
    return RequestError("inputs", f"{num_tokens} tokens", message)
