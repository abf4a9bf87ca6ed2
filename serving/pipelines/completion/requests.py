"""Builds the engine's requests of completion jobs, each once and whole, without an engine.

The service, the offline commands and the bench build them here, so that what is measured is what
is served.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from serving.bundle.manifest import Manifest
from serving.constraints import Constraint
from serving.parameters import TokenIds
from serving.pipelines.completion.job import CompletionJob
from serving.pipelines.completion.prompts import Prompt
from serving.pipelines.decoding_requests import request_arguments, sampling_with_own_seed
from serving.pipelines.defaults import MAX_NEW_TOKENS
from serving.request import GenerationRequest
from serving.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class CompletionRun:
    """Holds one request to the engine and what its completions need to know beside it.

    request: None where what is echoed is all that is wanted.
    index: the number of its first completion.
    echoed: tokens that the completion begins with and that the engine does not report.
    begins_text: the completion, what is echoed included, is a text of its own.
    """

    request: GenerationRequest | None
    index: int
    num_prompt_tokens: int
    echoed: TokenIds
    begins_text: bool

    @property
    def num_forced(self) -> int:
        return len(self.request.forced_ids) if self.request else 0

    @property
    def has_others(self) -> bool:
        """Say whether it brings more than one completion."""
        beam = self.request.beam if self.request else None
        return beam is not None and beam.num_hypotheses > 1


class CompletionRequests:
    """Builds the requests of one bundle's jobs; needs no engine, so the bench can ask for them.

    `CompletionRequests(manifest, tokenizer).runs(job, number, prompt)` holds exactly the requests
    that the service makes of a job's prompt, as `PromptReader` has read it.
    """

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._max_new_tokens: int | None = manifest.generation.get(MAX_NEW_TOKENS)

    def runs(
        self, job: CompletionJob, number: int, prompt: Prompt, constraint: Constraint | None = None
    ) -> Iterator[CompletionRun]:
        """Yield the runs of one prompt: a beam search makes all its choices at once, each sample
        is a run of its own.

        number: the prompt's among the job's prompts, from 0.
        constraint: what the output must look like, compiled from the job's `structure`.
        """
        given, forced = _given_and_forced(job, prompt)
        only_echoes = job.decoding.max_new_tokens == 0 and not forced
        step = job.num_choices if job.decoding.beam and not only_echoes else 1
        first = number * job.num_choices
        for index in range(first, first + job.num_choices, step):
            yield CompletionRun(
                None if only_echoes else self._request(job, prompt, index, constraint),
                index,
                prompt.num_tokens,
                given if job.echo else (),
                job.echo or prompt.ends_text,
            )

    def _request(
        self, job: CompletionJob, prompt: Prompt, index: int, constraint: Constraint | None
    ) -> GenerationRequest:
        decoding = job.decoding
        given, forced = _given_and_forced(job, prompt)
        arguments = request_arguments(decoding, self._tokenizer)
        if decoding.max_new_tokens == 0:  # nothing is generated that could be a stop token
            arguments |= {"ignore_eos": True, "stop_token_ids": ()}
        limit = decoding.max_new_tokens
        return GenerationRequest(
            f"{job.request_id}-{index}",
            prompt_ids=given,
            is_whole=prompt.is_whole,
            forced_ids=forced,
            sampling=sampling_with_own_seed(decoding.sampling, index % job.num_choices),
            max_new_tokens=self._max_new_tokens if limit is None else limit,
            constraint=constraint,
            tells_logprobs=False,
            streams=job.streams,
            looks=job.looks,
            job_id=job.request_id,
            **arguments,
        )


def _given_and_forced(job: CompletionJob, prompt: Prompt) -> tuple[TokenIds, TokenIds]:
    """Divide a prompt in what is only given and what is forced, so that the engine reports it.

    The first token of all is forced only if the bundle's own prefix comes before it.
    """
    decoding = job.decoding
    if not job.echo or (decoding.logprobs is None and decoding.max_new_tokens != 0):
        return prompt.token_ids, ()
    num_given = 0 if prompt.num_before else 1
    return prompt.token_ids[:num_given], prompt.token_ids[num_given:]
