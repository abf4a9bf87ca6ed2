"""How an encoder-decoder wants its targets to be decoded: what they begin with, and defaults.

`generation_config.json` says it; in older folders, which have none, `config.json` does.
"""

from collections.abc import Mapping
from typing import Any

from models.conventions import Conventions
from models.pretrained.hugging_face.folder import Folder
from models.pretrained.hugging_face.generation import generation_defaults, stop_ids
from models.pretrained.hugging_face.options import Options
from models.pretrained.text.hugging_face import token_ids

NEUTRAL: Mapping[str, tuple[Any, ...]] = {  # what we have not, and the values that ask for nothing
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "diversity_penalty": (0.0,),
    "num_beam_groups": (1,),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_decoder_ids": ([],),
    "force_words_ids": ([],),
    "sequence_bias": ({},),
    "exponential_decay_length_penalty": (),
}


class Decoding:
    """start: the token that `generate` gives every target. forced: the one that it makes the first
    token after that, if any. stop: what ends a target.

    default_start: the option whose token begins targets where `decoder_start_token_id` is not said.
    """

    def __init__(self, folder: Folder, default_start: str) -> None:
        self.options: Options = folder.generation if folder.generation.values else folder.config
        config = folder.config
        self._unknown = _unknown(folder)
        self.stop = stop_ids(folder.generation, config)
        if not self.stop:
            config.problems.append(f"{config.file}: eos_token_id is missing")
        self.start = self._start(config, default_start)
        forced = self.options.ids("forced_bos_token_id")
        self.forced = forced[0] if forced else None
        for end in self.options.ids("forced_eos_token_id"):
            if end not in self.stop:
                self.options.refuse("forced_eos_token_id", "must be an eos_token_id")
        for name, values in NEUTRAL.items():
            self.options.only(name, *values)

    def _start(self, config: Options, default: str) -> int:
        name = "decoder_start_token_id"
        for options in (self.options, config):
            if name in options:
                return options.integer(name)
        return config.integer(default)

    def conventions(
        self,
        prompt: tuple[int, ...],
        num_forced: int = 0,
        options: Options | None = None,
        **around: Any,
    ) -> Conventions:
        """Those of targets that begin with `prompt` and after it with `num_forced` tokens of their
        language. options: what says defaults, if not the folder as a whole. around: languages, and
        what else stands around a source that ends with the token that ends a target.
        """
        return Conventions(
            source_suffix=self.stop[:1],
            prompt_prefix=prompt,
            stop=self.stop,
            unk=self._unknown,
            generation=self._defaults(len(prompt) + num_forced, options or self.options),
            **around,
        )

    @property
    def prompt(self) -> tuple[int, ...]:
        """What every target begins with."""
        return (self.start,) if self.forced is None else (self.start, self.forced)

    @property
    def special_tokens(self) -> dict[str, int]:
        """By the names of our configurations."""
        eos = self.stop[0] if self.stop else 0
        return {"bos_id": self.start, "eos_id": eos}

    def _defaults(self, num_prompt: int, options: Options) -> dict[str, Any]:
        """Of requests. Their lengths include what targets begin with."""
        found = generation_defaults(options)
        for theirs, ours in (("max_length", "max_new_tokens"), ("min_length", "min_tokens")):
            length = options.integer(theirs, 0) - num_prompt
            if length > 0:
                found.setdefault(ours, length)
        return found


def _unknown(folder: Folder) -> int | None:
    """The token of targets that stands for what has none."""
    if folder.tokenizers is None:
        return None
    known = token_ids(folder.tokenizers.target or folder.tokenizers.source)
    return known.get(folder.tokenizer.word("unk_token", "<unk>"))
