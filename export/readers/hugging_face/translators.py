"""Common parts of translators: language tokens, decoding, sizes and weights.

The token of a language stands before or after the source, or begins the target; each family decides
it (see `models.conventions`). `generation_config.json` has the decoding; in older folders without
one, `config.json` has it. The descendants of BART (Marian, M2M-100, mBART) share names of tensors
and sizes.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from export.readers.common.options import MOST_LAYERS, MOST_POSITIONS, WIDEST, Options
from export.readers.common.shapes import STACKS, read_activation, stack_names, transformer_shapes
from export.readers.common.weights import (
    Computed,
    Names,
    Shape,
    Table,
    TensorReference,
    Tensors,
    WeightReader,
    apply_change,
    read_weights,
)
from export.readers.hugging_face.folder import (
    UNTIED,
    Folder,
    forced_eos,
    generation_defaults,
    logits_processors,
    refuse_unsupported,
    stop_ids,
)
from export.readers.hugging_face.tokenizers import token_ids, token_text
from models.checkpoint import UNKNOWN_LANGUAGE
from models.conventions import AddedLanguageIds, Conventions
from models.safetensors import Array

NLLB = r"([a-z]{3}_[A-Z][a-z]{3})"  # eng_Latn
M2M = r"__([a-z]{2,3})__"
MBART = r"([a-z]{2}_[A-Z]{2})"  # en_XX
MARIAN = r">>(\S+)<<"
MADLAD = r"<2([a-z]{2,3}(?:_[A-Z][a-z]{3})?)>"  # <2en>, <2zh_Latn>


def language_tokens(folder: Folder, pattern: str) -> dict[str, int]:
    """Return the ids of all tokens that match as a whole, by the code in the first group."""
    if folder.tokenizers is None:
        return {}
    known = token_ids(folder.tokenizers.source)
    vocab_size = folder.config.integer("vocab_size")
    return {
        match[1]: token_id
        for token, token_id in sorted(known.items(), key=lambda item: item[1])
        if token_id < vocab_size and (match := re.fullmatch(pattern, token))
    }


def only_token(tokens: Mapping[str, int], token_id: int | None) -> dict[str, int]:
    """Return the language with which a model always begins, or all languages if there is no such
    one.
    """
    found = {code: each for code, each in tokens.items() if each == token_id}
    return found or dict(tokens)


def by_language(
    tokens: Mapping[str, int], ids: Callable[[int], AddedLanguageIds]
) -> dict[str, AddedLanguageIds]:
    return {code: ids(token_id) for code, token_id in tokens.items()}


def codes(languages: Iterable[str]) -> list[str]:
    return list(languages) or [UNKNOWN_LANGUAGE]


class DecoderTokens:
    """start: the token that `generate` gives every target. forced: the one that it makes the first
    token after that, if any. stop: what ends a target.

    default_start: the option whose token begins targets where `decoder_start_token_id` is not said.
    """

    def __init__(self, folder: Folder, default_start: str) -> None:
        self._config = config = folder.config
        self.options: Options = folder.defaults
        self.vocab_size = config.integer("decoder_vocab_size", config.integer("vocab_size"))
        self.stop = stop_ids(folder, self.vocab_size)
        if not self.stop:
            config.problems.append(f"{config.file}: eos_token_id is missing")
        self.start = self._start(config, default_start)
        forced = self.options.ids("forced_bos_token_id")
        self.forced = forced[0] if forced else None
        self._unknown = _unknown(folder, self.vocab_size)
        self._forced_eos = forced_eos(self.options, self.stop)
        self._check()
        refuse_unsupported(self.options)

    def _start(self, config: Options, default: str) -> int:
        name = "decoder_start_token_id"
        holder = next((each for each in (self.options, config) if name in each), None)
        return config.integer(default) if holder is None else holder.integer(name)

    def _check(self) -> None:
        for name in ("decoder_start_token_id", "forced_bos_token_id", "eos_token_id"):
            self.must_be_tokens(name, self.options.ids(name))

    def must_be_tokens(self, name: str, ids: Iterable[int]) -> None:
        """Add a problem for ids outside the target's vocabulary, if its size is known."""
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
            logits_processors=logits_processors(
                self.options, self.vocab_size, len(prompt) + num_forced - 1
            ),
            **around,
        )

    @property
    def prompt(self) -> tuple[int, ...]:
        """Return the tokens with which every target begins."""
        return (self.start,) if self.forced is None else (self.start, self.forced)

    @property
    def special_tokens(self) -> dict[str, int]:
        """Return the special tokens by the names of our configurations; refused ones are 0."""
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
    """Return the unknown token of targets."""
    if folder.tokenizers is None:
        return None
    known = token_ids(folder.tokenizers.target or folder.tokenizers.source)
    token_id = known.get(token_text(folder.tokenizer.get("unk_token")) or "<unk>")
    return token_id if token_id is not None and token_id < vocab_size else None


LEARNED_POSITIONS: Names = {  # two rows are empty, for fairseq's padding
    f"{stack}.positions": TensorReference(f"model.{stack}.embed_positions", skipped=2)
    for stack in STACKS
}
PREFIX = "model."
EMBEDDINGS = (  # of one table; files hold some of them
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
IGNORED = (
    r"(model\.)?(shared|(encoder|decoder)\.embed_tokens)\.weight|lm_head\.weight",  # repeated
    r"(model\.)?(encoder|decoder)\.version",  # of fairseq's files
    r"(model\.)?(encoder|decoder)\.embed_positions\.weights?",  # that are computed
)


def sizes(folder: Folder, *, default_activation: str, scales: bool) -> dict[str, Any]:
    """Read options of ours that all four families say in the same words.

    scales: whether embeddings are scaled where `scale_embedding` is not said.
    """
    options = folder.config
    heads, ffn_dim = (
        {stack: options.integer(f"{stack}_{name}") for stack in STACKS}
        for name in ("attention_heads", "ffn_dim")
    )
    imported = {
        name: sizes["encoder"]
        for name, sizes in (("encoder_heads", heads), ("encoder_ffn_dim", ffn_dim))
        if sizes["encoder"] != sizes["decoder"]
    }
    num_positions = options.integer("max_position_embeddings", at_most=MOST_POSITIONS)
    return {
        "architecture": "transformer",
        "vocab_size": options.integer("vocab_size"),
        "d_model": options.integer("d_model", at_most=WIDEST),
        "num_heads": heads["decoder"],
        "ffn_dim": ffn_dim["decoder"],
        "encoder_layers": options.integer("encoder_layers", at_most=MOST_LAYERS),
        "decoder_layers": options.integer("decoder_layers", at_most=MOST_LAYERS),
        "max_source_tokens": num_positions,
        "max_target_tokens": num_positions,
        "positions": {"kind": "learned"},
        "activation": read_activation(options, "activation_function", default_activation),
        "imported": {"embedding_scale": _embedding_scale(options, scales), **imported},
        "tied_embeddings": _is_tied(folder),
        "pad_id": options.integer("pad_token_id"),
    }


def _is_tied(folder: Folder) -> bool:
    """Return whether source, target and output share one table. If the output's table is stored
    with other numbers, it is used whatever the configuration says, as in transformers 5.
    """
    shared, source, target, output = EMBEDDINGS
    tensors = folder.tensors
    tensors.prefix = PREFIX
    if not folder.config.flag("tie_word_embeddings", True):
        if tensors and output not in tensors:
            folder.problems.append(f"{output} is missing, and tie_word_embeddings is false")
        return False
    if any(tensors.differ(name, shared) for name in (source, target)):
        message = "is true, but the tables of source and target differ"
        folder.config.refuse("tie_word_embeddings", message)
    if not any(tensors.differ(name, output) for name in (shared, source, target)):
        return True
    folder.notes.append(UNTIED.format(file=folder.config.file))
    return False


def _embedding_scale(options: Options, default: bool) -> float:
    scales = options.flag("scale_embedding", default)
    return math.sqrt(options.integer("d_model")) if scales else 1.0


def weights(config: Any, tensors: Tensors, more: Names) -> dict[str, WeightReader]:
    """Return readers of the weights of both stacks and of the vocabulary.

    more: names of the family's further weights.
    """
    names = {**stack_names("model."), **_vocabulary(), **more}
    table = Table(names, ignored=IGNORED, prefix=PREFIX)
    return read_weights(transformer_shapes(config), table, tensors)


def _vocabulary() -> Names:
    """Return the names of one table for source, target and output, or of three; some files repeat
    them.
    """
    shared, source, target, output = EMBEDDINGS
    return {
        "embedding.weight": TensorReference((*EMBEDDINGS, shared)),
        "source_embedding.weight": TensorReference((source, shared)),
        "target_embedding.weight": TensorReference((target, shared)),
        "output.weight": TensorReference((output, target, shared)),
    }


def made_positions(make: Callable[[Shape], Array]) -> Names:
    """Compute one table for both stacks when it is needed; older files hold it too."""
    return {f"{stack}.positions.weight": Computed(make) for stack in STACKS}


def output_bias(tensors: Tensors, vocab_size: int) -> WeightReader | None:
    """Read it, [vocab_size], if there is one that is not all zeros."""
    if "final_logits_bias" not in tensors:
        return None
    bias = apply_change(tensors.take("final_logits_bias", (1, vocab_size)), lambda array: array[0])
    return bias if np.any(bias()) else None
