"""Build the engine requests of encode jobs, without an engine: one for each input.

The service, the offline commands and the benchmarks build their requests here, so that all of them
run the same requests.
"""

from collections.abc import Sequence

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.pipelines.jobs import EncodeInput, EncodeJob, TextPair
from serving.requests.parameters import TokenIds
from serving.requests.request import GenerationRequest
from serving.text.checks import tokenizing
from serving.text.tokenizer import Tokenizer

EncodedInput = tuple[TokenIds, int | None]  # ids, and where the second text of a pair begins


class EncodingRequests:
    """Builds the requests of one bundle's jobs; needs no engine."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        assert manifest.encoder is not None and manifest.limits.max_source_tokens is not None
        self._encoder = manifest.encoder
        self._max_tokens = manifest.limits.max_source_tokens
        self._prefix, self._suffix = manifest.tokens.source_prefix, manifest.tokens.source_suffix
        self._tokenizer = tokenizer

    def encodings(self, job: EncodeJob) -> list[GenerationRequest]:
        """Return a request for each input. Raises RequestError."""
        decoding = job.decoding
        return [
            GenerationRequest(
                f"{job.request_id}-{number}",
                ids,
                pair_start=pair_start,
                attention_queries=job.attention_queries,
                priority=decoding.priority,
                timeout_seconds=decoding.timeout_seconds,
                job_id=job.request_id,
                share=decoding.share,
            )
            for number, (ids, pair_start) in enumerate(self._encode_inputs(job))
        ]

    def with_special_tokens(self, ids: TokenIds) -> TokenIds:
        """Return the tokens of a text as the model reads them, between special ones."""
        return (*self._prefix, *ids, *self._suffix)

    def without_special_tokens(self, num_tokens: int) -> slice:
        """Return which of a text's tokens are not special."""
        return slice(len(self._prefix), num_tokens - len(self._suffix))

    def _encode_inputs(self, job: EncodeJob) -> list[EncodedInput]:
        """Return the tokens of each input, cut to as many as the job and the model allow."""
        max_tokens = min(job.max_tokens or self._max_tokens, self._max_tokens)
        tokens = self._tokenize(job.inputs, self._prompt(job.prompt_name))
        encoded: list[EncodedInput] = []
        for number, (source, parts) in enumerate(zip(job.inputs, tokens, strict=True)):
            is_ids = isinstance(source, tuple)
            num_special = 0 if is_ids else self._num_special(len(parts))
            num_tokens = sum(map(len, parts)) + num_special
            if job.max_tokens is None and num_tokens > max_tokens:
                which = "this" if len(job.inputs) == 1 else f"number {number}"
                raise _too_long(which, num_tokens, max_tokens)
            if max_tokens < num_special + len(parts):
                message = f"must be at least {num_special + len(parts)}, special tokens included"
                raise RequestError("max_tokens", job.max_tokens, message)
            cut = _cut(parts, max_tokens - num_special)
            encoded.append((cut[0], None) if is_ids else self._join(cut))
        return encoded

    def _prompt(self, name: str | None) -> str:
        prompts = self._encoder.prompts
        name = self._encoder.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in prompts:
            names = ", ".join(sorted(prompts)) or "none"
            raise RequestError("prompt_name", name, f"the model has no such prompt; it has {names}")
        return prompts[name]

    def _tokenize(self, inputs: Sequence[EncodeInput], prompt: str) -> list[list[TokenIds]]:
        """Return the tokens of each input, of a pair those of each text; without special ones."""
        texts: list[str] = []
        for source in inputs:
            if isinstance(source, TextPair):
                self._check_takes_pairs()
                texts += [source.first, source.second]
            elif isinstance(source, str):
                texts.append(prompt + source)
        with tokenizing("inputs"):
            rows = iter(self._tokenizer.encode_batch(texts) if texts else [])
        tokens: list[list[TokenIds]] = []
        for source in inputs:
            if isinstance(source, tuple):
                tokens.append([source])
            else:
                num_texts = 2 if isinstance(source, TextPair) else 1
                tokens.append([tuple(next(rows)) for _ in range(num_texts)])
        return tokens

    def _check_takes_pairs(self) -> None:
        if self._encoder.separator is None:
            raise RequestError("inputs", "a pair of texts", "this model reads one text, not two")

    def _num_special(self, num_texts: int) -> int:
        separator = self._encoder.separator or ()
        return len(self._prefix) + len(self._suffix) + (num_texts - 1) * len(separator)

    def _join(self, parts: Sequence[TokenIds]) -> EncodedInput:
        first, *others = parts
        if not others:
            return self.with_special_tokens(first), None
        head = (*self._prefix, *first, *(self._encoder.separator or ()))
        return (*head, *others[0], *self._suffix), len(head)


def _cut(parts: Sequence[TokenIds], room: int) -> list[TokenIds]:
    """Cut texts to so many tokens together: of a pair the longer one, then both to halves, as
    Hugging Face's tokenizers do (longest first).
    """
    if len(parts) == 1 or sum(map(len, parts)) <= room:
        return [part[:room] for part in parts]
    shorter = min(parts, key=len)
    num_shorter = min(len(shorter), room // 2)
    return [part[: num_shorter if part is shorter else room - num_shorter] for part in parts]


def _too_long(which: str, num_tokens: int, max_tokens: int) -> RequestError:
    num_more = num_tokens - max_tokens
    message = f"the model reads {max_tokens} tokens, and {which} has {num_more} more"
    return RequestError("inputs", f"{num_tokens} tokens", message)
