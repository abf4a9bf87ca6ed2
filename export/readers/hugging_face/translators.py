"""What the families of encoder-decoders have in common: sizes, language tokens, and decoding.

The token of a language stands before or after the source, or begins the target; each family decides
it (see `models.conventions`). `generation_config.json` has the decoding; in older folders without
one, `config.json` has it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from export.readers.common.options import MOST_LAYERS, WIDEST, Options
from export.readers.common.shapes import STACKS
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.generation_settings import (
    forced_eos,
    generation_defaults,
    logits_processors,
    refuse_unsupported,
    stop_ids,
)
from export.readers.hugging_face.tokenizers import token_ids, token_text
from models.checkpoint import UNKNOWN_LANGUAGE
from models.conventions import Conventions

# Tokens of languages, with their codes.
NLLB_TOKEN = r"([a-z]{3}_[A-Z][a-z]{3})"  # eng_Latn
M2M_TOKEN = r"__([a-z]{2,3})__"
MBART_TOKEN = r"([a-z]{2}_[A-Z]{2})"  # en_XX
MARIAN_TOKEN = r">>(\S+)<<"
MADLAD_TOKEN = r"<2([a-z]{2,3}(?:_[A-Z][a-z]{3})?)>"  # <2en>, <2zh_Latn>


def read_stack_sizes(options: Options) -> dict[str, Any]:
    """Read the sizes of an encoder and a decoder by the names of BART's configuration. `imported`
    has what the encoder has otherwise.
    """
    heads, ffn_dim = (
        {stack: options.integer(f"{stack}_{name}") for stack in STACKS}
        for name in ("attention_heads", "ffn_dim")
    )
    return {
        "d_model": options.integer("d_model", at_most=WIDEST),
        "num_heads": heads["decoder"],
        "ffn_dim": ffn_dim["decoder"],
        "encoder_layers": options.integer("encoder_layers", at_most=MOST_LAYERS),
        "decoder_layers": options.integer("decoder_layers", at_most=MOST_LAYERS),
        "imported": {
            name: sizes["encoder"]
            for name, sizes in (("encoder_heads", heads), ("encoder_ffn_dim", ffn_dim))
            if sizes["encoder"] != sizes["decoder"]
        },
    }


def read_language_tokens(folder: Folder, pattern: str) -> dict[str, int]:
    """Return the ids of all tokens that match as a whole, by the code in the first group."""
    if folder.tokenizers is None:
        return {}
    ids = token_ids(folder.tokenizers.source)
    vocab_size = folder.config.integer("vocab_size")
    return {
        match[1]: token_id
        for token, token_id in sorted(ids.items(), key=lambda item: item[1])
        if token_id < vocab_size and (match := re.fullmatch(pattern, token))
    }


def only_token(tokens: Mapping[str, int], token_id: int | None) -> dict[str, int]:
    """Return the language with which a model always begins, or all languages if there is no such
    one.
    """
    first = {code: id_ for code, id_ in tokens.items() if id_ == token_id}
    return first or dict(tokens)


def list_codes(languages: Iterable[str]) -> list[str]:
    return list(languages) or [UNKNOWN_LANGUAGE]


class Decoding:
    """How targets begin and end, and the defaults of requests.

    start: the token that `generate` gives every target. forced: the one that it makes the first
    token after that, if any. stop: what ends a target.
    """

    def __init__(self, folder: Folder, default_start: str) -> None:
        """default_start: the option whose token begins targets, where `decoder_start_token_id` is
        missing.
        """
        self._config = config = folder.config
        self.options: Options = folder.defaults
        self.vocab_size = config.integer("decoder_vocab_size", config.integer("vocab_size"))
        self.stop = stop_ids(folder, self.vocab_size)
        if not self.stop:
            config.problems.append(f"{config.file}: eos_token_id is missing")
        self.start = self._read_start(default_start)
        forced = self.options.ids("forced_bos_token_id")
        self.forced = forced[0] if forced else None
        self._unknown = _read_unknown(folder, self.vocab_size)
        self._forced_eos = forced_eos(self.options, self.stop)
        self._check()
        refuse_unsupported(self.options)

    def _read_start(self, default: str) -> int:
        name = "decoder_start_token_id"
        for options in (self.options, self._config):
            if name in options:
                return options.integer(name)
        return self._config.integer(default)

    def _check(self) -> None:
        for name in ("decoder_start_token_id", "forced_bos_token_id", "eos_token_id"):
            self.must_be_tokens(name, self.options.ids(name))

    def must_be_tokens(self, name: str, ids: Iterable[int]) -> None:
        """Add a problem for ids outside the target's vocabulary, if its size is known."""
        has_size = "vocab_size" in self._config
        if has_size and not all(0 <= token_id < self.vocab_size for token_id in ids):
            self.options.refuse(name, f"must be less than vocab_size {self.vocab_size}")

    def conventions(
        self,
        prompt: tuple[int, ...],
        num_forced: int = 0,
        options: Options | None = None,
        **special: Any,
    ) -> Conventions:
        """Describe targets that begin with `prompt` and after it with `num_forced` tokens of their
        language. options: what says defaults, if not the folder as a whole. special: languages, and
        the special tokens of a source, which ends with the token that ends a target.
        """
        return Conventions(
            source_suffix=self.stop[:1],
            prompt_prefix=prompt,
            stop=self.stop,
            unk=self._unknown,
            forced_eos=self._forced_eos,
            generation=self._defaults(len(prompt) + num_forced, options or self.options),
            logits_processors=logits_processors(
                self.options, self.vocab_size, len(prompt) + num_forced - 1
            ),
            **special,
        )

    @property
    def prompt(self) -> tuple[int, ...]:
        """Return the tokens with which every target begins."""
        return (self.start,) if self.forced is None else (self.start, self.forced)

    @property
    def special_tokens(self) -> dict[str, int]:
        """Return the special tokens by the names of our configurations; refused ones are 0."""
        ids = {"bos_id": self.start, "eos_id": next(iter(self.stop), 0)}
        return {name: id_ if 0 <= id_ < self.vocab_size else 0 for name, id_ in ids.items()}

    def _defaults(self, num_prompt: int, options: Options) -> dict[str, Any]:
        """Read those of requests, whose lengths there include what targets begin with."""
        defaults = generation_defaults(options)
        for theirs, ours in (("max_length", "max_new_tokens"), ("min_length", "min_tokens")):
            length = options.integer(theirs, 0) - num_prompt
            if length > 0:
                defaults.setdefault(ours, length)
        return defaults


def _read_unknown(folder: Folder, vocab_size: int) -> int | None:
    """Return the unknown token of targets."""
    if folder.tokenizers is None:
        return None
    ids = token_ids(folder.tokenizers.target or folder.tokenizers.source)
    token_id = ids.get(token_text(folder.tokenizer.get("unk_token")) or "<unk>")
    return token_id if token_id is not None and token_id < vocab_size else None
