"""Reads how an encoder-decoder wants its targets to be decoded: their beginning, and defaults.

`generation_config.json` says it; in older folders, which have none, `config.json` does.
"""

from collections.abc import Iterable
from typing import Any

from export.readers.common.options import Options
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.generation import (
    forced_eos,
    generation_defaults,
    refuse_unsupported,
    stop_ids,
)
from export.readers.hugging_face.tokenizers import token_ids
from models.conventions import Conventions


class Decoding:
    """start: the token that `generate` gives every target. forced: the one that it makes the first
    token after that, if any. stop: what ends a target.

    default_start: the option whose token begins targets where `decoder_start_token_id` is not said.
    supported: options of generation that the family's reader takes care of.
    """

    def __init__(self, folder: Folder, default_start: str, *supported: str) -> None:
        self._config = config = folder.config
        self.options: Options = folder.defaults
        self.vocab_size = config.integer("decoder_vocab_size", config.integer("vocab_size"))
        self.stop = stop_ids(folder.generation, config)
        if not self.stop:
            config.problems.append(f"{config.file}: eos_token_id is missing")
        self.start = self._start(config, default_start)
        forced = self.options.ids("forced_bos_token_id")
        self.forced = forced[0] if forced else None
        self._unknown = _unknown(folder, self.vocab_size)
        self._forced_eos = forced_eos(self.options, self.stop)
        self._check()
        refuse_unsupported(self.options, *supported)

    def _start(self, config: Options, default: str) -> int:
        name = "decoder_start_token_id"
        holder = next((each for each in (self.options, config) if name in each), None)
        return config.integer(default) if holder is None else holder.integer(name)

    def _check(self) -> None:
        for name in ("decoder_start_token_id", "forced_bos_token_id", "eos_token_id"):
            self.must_be_tokens(name, self.options.ids(name))

    def must_be_tokens(self, name: str, ids: Iterable[int]) -> None:
        """Note ids that are not of the target's vocabulary, if its size is known."""
        is_known = "vocab_size" in self._config
        if is_known and not all(0 <= token_id < self.vocab_size for token_id in ids):
            self.options.refuse(name, f"must be less than vocab_size {self.vocab_size}")

    def conventions(
        self,
        prompt: tuple[int, ...],
        num_forced: int = 0,
        options: Options | None = None,
        **around: Any,
    ) -> Conventions:
        """Describe targets that begin with `prompt` and after it with `num_forced` tokens of their
        language. options: what says defaults, if not the folder as a whole. around: languages, and
        what else stands around a source that ends with the token that ends a target.
        """
        return Conventions(
            source_suffix=self.stop[:1],
            prompt_prefix=prompt,
            stop=self.stop,
            unk=self._unknown,
            forced_eos=self._forced_eos,
            generation=self._defaults(len(prompt) + num_forced, options or self.options),
            **around,
        )

    @property
    def prompt(self) -> tuple[int, ...]:
        """Give the tokens that every target begins with."""
        return (self.start,) if self.forced is None else (self.start, self.forced)

    @property
    def special_tokens(self) -> dict[str, int]:
        """Name them as our configurations do; those that are refused are 0."""
        ids = {"bos_id": self.start, "eos_id": next(iter(self.stop), 0)}
        return {name: each if 0 <= each < self.vocab_size else 0 for name, each in ids.items()}

    def _defaults(self, num_prompt: int, options: Options) -> dict[str, Any]:
        """Read those of requests, whose lengths there include what targets begin with."""
        found = generation_defaults(options)
        for theirs, ours in (("max_length", "max_new_tokens"), ("min_length", "min_tokens")):
            length = options.integer(theirs, 0) - num_prompt
            if length > 0:
                found.setdefault(ours, length)
        return found


def _unknown(folder: Folder, vocab_size: int) -> int | None:
    """Find the token of targets that stands for what has none."""
    if folder.tokenizers is None:
        return None
    known = token_ids(folder.tokenizers.target or folder.tokenizers.source)
    token_id = known.get(folder.tokenizer.word("unk_token", "<unk>"))
    return token_id if token_id is not None and token_id < vocab_size else None
