"""Build the engine requests of completion jobs, without an engine.

The service, the offline commands and the benchmarks build their requests here, so that all of them
run the same requests.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from serving.bundle.manifest import Manifest
from serving.pipelines.completion.prompts import Prompt
from serving.pipelines.decoding import (
    MAX_NEW_TOKENS,
    request_arguments,
    sampling_with_seed_offset,
)
from serving.pipelines.jobs import CompletionJob
from serving.requests.parameters import TokenIds
from serving.requests.request import Constraint, GenerationRequest
from serving.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class CompletionRun:
    """One request to the engine, and what is needed to make completions of its events.

    request: None if only the prompt is echoed.
    index: the number of its first completion.
    echoed: tokens at the start of the completion that the engine does not report.
    begins_text: whether the completion, including echoed tokens, begins a text.
    prompt_token_ids: all tokens of the prompt, as the model reads them.
    """

    request: GenerationRequest | None
    index: int
    num_prompt_tokens: int
    echoed: TokenIds
    begins_text: bool
    prompt_token_ids: TokenIds = ()

    @property
    def num_forced(self) -> int:
        return len(self.request.forced_ids) if self.request else 0

    @property
    def has_others(self) -> bool:
        """Return whether the request has more than one completion."""
        beam = self.request.beam if self.request else None
        return beam is not None and beam.num_hypotheses > 1


class CompletionRequests:
    """Builds the requests of one bundle's jobs. Needs no engine.

    `CompletionRequests(manifest, tokenizer).runs(job, number, prompt)` returns the requests that
    the service makes for a prompt read by `PromptReader`.
    """

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._prefix = tuple(manifest.tokens.prompt_prefix)
        self._max_new_tokens: int | None = manifest.generation.get(MAX_NEW_TOKENS)

    def runs(
        self, job: CompletionJob, number: int, prompt: Prompt, constraint: Constraint | None = None
    ) -> Iterator[CompletionRun]:
        """Yield the runs of one prompt. A beam search finds all choices in one run; each sample is
        a run.

        number: the number of the prompt among those of the job, from 0.
        constraint: compiled from the job's `structure`.
        """
        prompt_ids, forced_ids = _split_prompt(job, prompt)
        only_echoes = job.decoding.max_new_tokens == 0 and not forced_ids
        step = job.num_choices if job.decoding.beam and not only_echoes else 1
        first = number * job.num_choices
        for index in range(first, first + job.num_choices, step):
            yield CompletionRun(
                None if only_echoes else self._request(job, prompt, index, constraint),
                index,
                prompt.num_read,
                prompt_ids if job.echo else (),
                job.echo or prompt.ends_text,
                prompt.token_ids if prompt.is_whole else self._prefix + prompt.token_ids,
            )

    def _request(
        self, job: CompletionJob, prompt: Prompt, index: int, constraint: Constraint | None
    ) -> GenerationRequest:
        decoding = job.decoding
        prompt_ids, forced_ids = _split_prompt(job, prompt)
        arguments = request_arguments(decoding, self._tokenizer)
        if decoding.max_new_tokens == 0:  # nothing is generated that could be a stop token
            arguments |= {"ignore_eos": True, "stop_token_ids": ()}
        limit = decoding.max_new_tokens
        return GenerationRequest(
            f"{job.request_id}-{index}",
            prompt_ids=prompt_ids,
            is_whole=prompt.is_whole,
            picture=prompt.picture,
            forced_ids=forced_ids,
            sampling=sampling_with_seed_offset(decoding.sampling, index % job.num_choices),
            max_new_tokens=self._max_new_tokens if limit is None else limit,
            constraint=constraint,
            returns_logprobs=False,
            streams=job.streams or bool(job.stop),  # a stop string ends a request early
            attention_queries=job.attention_queries,
            job_id=job.request_id,
            **arguments,
        )


def _split_prompt(job: CompletionJob, prompt: Prompt) -> tuple[TokenIds, TokenIds]:
    """Split a prompt into tokens that are only read and tokens that are forced, so that the engine
    reports them. The very first token is forced only if the prefix of the bundle precedes it.
    """
    decoding = job.decoding
    if not job.echo or (decoding.logprobs is None and decoding.max_new_tokens != 0):
        return prompt.token_ids, ()
    num_read = 0 if prompt.num_before else 1
    return prompt.token_ids[:num_read], prompt.token_ids[num_read:]
