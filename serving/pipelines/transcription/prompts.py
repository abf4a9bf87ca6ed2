"""The tokens that a transcript begins with: the text before it, its language and its task."""

from collections.abc import Sequence

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.pipelines.transcription.job import TranscriptionJob
from serving.requests.parameters import TokenIds
from serving.text.checks import tokenizing
from serving.text.languages import match_codes
from serving.text.tokenizer import Tokenizer

ENGLISH = "en"


class TranscriptPrompts:
    """Writes the prompts of one model."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        assert manifest.audio is not None, "a model that transcribes reads sound"
        self._name, self._audio = manifest.name, manifest.audio
        self._tokenizer = tokenizer
        self._first_special = manifest.tokens.eos  # ids of text are lower
        self.languages = tuple(self._audio.languages) or manifest.source_languages or (ENGLISH,)
        # As in openai/whisper: half of the context is for what is written.
        self._max_previous = manifest.limits.max_target_tokens // 2 - 1

    def resolve_language(self, job: TranscriptionJob) -> str | None:
        """Return the language of a job as the model spells it; None if it has to be identified.
        Raises RequestError for languages and tasks that the model does not know.
        """
        if job.translates and self._audio.translate is None:
            message = f"model {self._name} does not translate; it writes what is said"
            raise RequestError("task", "translate", message)
        if job.language is None:
            return self.languages[0] if len(self.languages) == 1 else None
        matches = match_codes(job.language, self.languages)
        if not matches:
            message = f"model {self._name} has {', '.join(self.languages)}"
            raise RequestError("language", job.language, message)
        return matches[0]

    def encode_text(self, text: str) -> TokenIds:
        """Return the tokens of a text that is said to come before the recording."""
        if not text.strip():
            return ()
        with tokenizing("prompt"):
            ids = self._tokenizer.encode_inside(f" {text.strip()}")
        return tuple(token_id for token_id in ids if token_id < self._first_special)

    def continue_from(self, previous_ids: Sequence[int]) -> TokenIds:
        """Return the prompt of a window after the text before it, of which the end is read."""
        if not previous_ids:
            return (self._audio.start,)
        return (self._audio.previous, *previous_ids[-self._max_previous :], self._audio.start)

    def forced_ids(self, language: str, job: TranscriptionJob) -> TokenIds:
        """Return the tokens of language and task, and the one that asks for no times."""
        ids: TokenIds = ()
        if self._audio.languages:
            task = self._audio.translate if job.translates else self._audio.transcribe
            assert task is not None, "a model of several languages has tokens of tasks"
            ids = (self._audio.languages[language], task)
        return ids if job.has_timestamps else (*ids, self._audio.no_timestamps)
