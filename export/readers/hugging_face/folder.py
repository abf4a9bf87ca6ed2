"""Opens a Hugging Face folder, as far as all families read it alike.

    folder = open_folder(path)
    config = folder.make_config({"architecture": "llama", "vocab_size": ...})
    return folder.checkpoint(config, {"embedding.weight": folder.tensors.take(...)}, conventions)

Whatever is wrong is noted in `folder.problems`; both methods raise with all that was found so far.
Nothing here knows a family.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from export.readers.common.checkpoint_files import add_notes, checkpoint_files, write_card
from export.readers.common.options import LARGEST, Options, read_options, unused_notes
from export.readers.common.torch_files import LazyArray, read_torch
from export.readers.common.weights import Tensors, WeightReader
from export.readers.hugging_face.tokenizers import (
    Tokenizers,
    read_tokenizers,
    token_ids,
    token_text,
)
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.checkpoint import Checkpoint, CheckpointError
from models.conventions import Conventions
from models.files import read_file
from models.safetensors import Arrays, Stored, in_safetensors

CONFIG_FILE = "config.json"
BASE_MODEL, HALF_MODEL = "Model", "EncoderModel"
NOT_QUANTISED = "is not supported: take the same model not quantised, or a .gguf file"
NO_END = "{file}: eos_token {end} is no token of the model, and ends no text"
UNTIED = (
    "{file} says that input and output share one table of words, and lm_head.weight is stored with"
    " other numbers: it is used, as transformers 5 does"
)


@dataclass(frozen=True)
class Folder:
    """config, generation, tokenizer: `config.json`, `generation_config.json` and
    `tokenizer_config.json`. tokenizers: those of both sides, None if there are none that work.
    notes: what whoever exports it should know. facts: lines of the model card.
    """

    path: Path
    config: Options
    generation: Options
    tokenizer: Options
    tokenizers: Tokenizers | None
    tensors: Tensors
    problems: list[str]
    notes: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    @property
    def defaults(self) -> Options:
        """Options of generation; older folders have them in `config.json`."""
        return self.generation if self.generation.values else self.config

    def make_config(self, values: Mapping[str, Any]) -> AnyConfig:
        """Make the configuration of ours with these values. Raises CheckpointError, unless
        problems are such that the tensors can be looked at all the same.
        """
        try:
            config = parse_config(dict(values))
        except ModelConfigError as error:
            # Values that took the place of bad ones may not fit together.
            is_explained = any(problem.startswith(CONFIG_FILE) for problem in self.problems)
            problems = [] if is_explained else [f"{CONFIG_FILE}: {each}" for each in error.problems]
            self.problems.extend(problems)
            self.fail()
        if not self.tensors or any(each.startswith(CONFIG_FILE) for each in self.problems):
            self.fail()
        return config

    def checkpoint(
        self, config: AnyConfig, weights: Mapping[str, WeightReader], conventions: Conventions
    ) -> Checkpoint:
        """Put the model together, its weights still unread. Raises CheckpointError."""
        self.tensors.refuse_unused()
        if self.problems or self.tokenizers is None:
            self.fail()
        card = folder_card(self.path, self.config, self.facts)
        files = checkpoint_files(card, self.tokenizers.source, self.tokenizers.target)
        bits: Literal[8] | None = 8 if "quantization_config" in self.config else None
        model = Checkpoint(self.path, config, Arrays(weights), conventions, files, bits=bits)
        return add_notes(model, [*self.notes, *self._list_unused()])

    def _list_unused(self) -> Iterator[str]:
        """Yield a note for each file with options that were not read."""
        if self.defaults is not self.config:
            self.config.use(*KEYS)
        yield from unused_notes(self.config, OF_CONFIG, OF_GENERATION)
        yield from unused_notes(self.generation, OF_GENERATION)
        yield from unused_notes(self.tokenizer, OF_TOKENIZER)

    def check_head(self, *expected: str) -> None:
        """Check the classes in `architectures`. expected: ends of their names. A base model has no
        head, which is noted; any other class is refused.
        """
        for kind in self.config.words("architectures"):
            if kind.endswith(BASE_MODEL) and not kind.endswith((*expected, HALF_MODEL)):
                note = f"{CONFIG_FILE}: {kind} has no head that writes words; it is read with one"
                self.notes.append(note)
            elif not kind.endswith(expected):
                endings = ", ".join(f"...{end}" for end in expected)
                self.config.refuse("architectures", f"is none of {endings}")

    def fail(self) -> NoReturn:
        """Raise CheckpointError with all problems that were found."""
        raise CheckpointError(self.path, list(dict.fromkeys(self.problems)))  # some twice


def open_folder(path: Path) -> Folder:
    """Look at everything in the folder; what is wrong is noted in its problems."""
    problems: list[str] = []
    config = read_options(path / CONFIG_FILE, problems, is_required=True)
    _check_quantisation(config)
    return Folder(
        path,
        config,
        read_options(path / "generation_config.json", problems),
        read_options(path / "tokenizer_config.json", problems),
        read_tokenizers(path, problems),
        Tensors(stored_tensors(path, problems), problems),
        problems,
    )


def _check_quantisation(config: Options) -> None:
    """Refuse what is quantised in another way than gpt-oss, whose tensors tell which are."""
    if "quantization_config" in config:
        packing = config.section("quantization_config")
        packing.use("dequantize", "modules_to_not_convert")
        if (packing.get("quant_method"), config.get("model_type")) != ("mxfp4", "gpt_oss"):
            config.refuse("quantization_config", NOT_QUANTISED)
    if "quantization" in config:  # of MLX
        config.refuse("quantization", NOT_QUANTISED)


MOST_SHARDS = 1000
MOST_INDEX_BYTES = 2**25  # 300,000 tensors
WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")
GIT_LFS = b"version https://git-lfs"


def stored_tensors(
    folder: Path, problems: list[str], names: Sequence[str] = WEIGHTS_FILES
) -> dict[str, Stored]:
    """Return all tensors of a folder by name, from the first of the files `names` that it has."""
    tensors: dict[str, Stored] = {}
    for path in _files(folder, problems, names):
        if _is_pointer(path):
            problems.append(f"{path.name} only points to a file: fetch that with `git lfs pull`")
            continue
        is_pickle = path.suffix == ".bin"
        tensors |= _in_pickle(path, problems) if is_pickle else in_safetensors(path, problems)
    return tensors


def _is_pointer(path: Path) -> bool:
    """Return whether Git has left a few lines in place of a large file."""
    try:
        with path.open("rb") as file:
            return file.read(len(GIT_LFS)) == GIT_LFS
    except OSError:
        return False


def _in_pickle(path: Path, problems: list[str]) -> dict[str, Stored]:
    """Read the tensors of one file of torch.save as data: nothing of it runs."""
    try:
        tree = read_torch(path)
    except CheckpointError as error:
        problems += [f"{path.name}: {problem}" for problem in error.problems]
        return {}
    if not isinstance(tree, dict):
        problems.append(f"{path.name} holds no tensors by name")
        return {}
    tensors = {str(name): tensor for name, tensor in tree.items() if isinstance(tensor, LazyArray)}
    return {
        name: Stored(tensor.kind, tensor.shape, tensor.read) for name, tensor in tensors.items()
    }


def _files(folder: Path, problems: list[str], names: Sequence[str]) -> Iterator[Path]:
    """Return the files with weights; a folder without any is a problem."""
    for name in names:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            yield folder / name
            return
        if index.is_file():
            yield from _shards(index, problems)
            return
    problems.append(f"{' or '.join(names)} is missing")


def _shards(index: Path, problems: list[str]) -> Iterator[Path]:
    options = read_options(index, problems, most_bytes=MOST_INDEX_BYTES).section("weight_map")
    names = sorted(set(map(str, options.values.values())))
    if len(names) > MOST_SHARDS:
        problems.append(f"{index.name} names {len(names)} files, more than {MOST_SHARDS}")
        return
    for name in names:
        if Path(name).name == name:
            yield index.parent / name
        else:
            problems.append(f"{index.name}: {name!r} is no name of a file beside it")


def folder_card(path: Path, config: Options, more: Sequence[str] = ()) -> bytes:
    """Write name, kind and licence in Markdown, as far as the folder says them, and more facts."""
    name = config.get("_name_or_path") or path.resolve().name
    facts = [f"Architecture: {config.get('model_type')}"]
    if licence := _licence(path / "README.md"):
        facts.append(f"Licence: {licence}")
    origin = f"Imported from the Hugging Face folder `{name}`."
    return write_card(path.resolve().name, origin, *facts, *more)


def _licence(path: Path) -> str | None:
    """Return `license` of the folder's own card, which begins with YAML between lines of `---`."""
    try:
        text = read_file(path).decode(errors="replace")
    except OSError:
        return None
    _, _, head = text.partition("---\n")
    for line in head.partition("\n---")[0].splitlines():
        name, _, value = line.partition(":")
        if name == "license":
            return value.strip().strip("\"'") or None
    return None


NAMES = {  # theirs -> ours
    "num_beams": "num_beams",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "max_new_tokens": "max_new_tokens",
    "min_new_tokens": "min_tokens",
}
OFF = {"min_p": 0.0, "typical_p": 1.0}
NOT_SAMPLED_BY = ("epsilon_cutoff", "eta_cutoff")  # 0 turns them off; other values get a note
SAMPLING = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, **OFF}  # generate()'s own defaults
NEUTRAL: Mapping[str, Any] = {
    "num_beams": 1,
    "length_penalty": 1.0,
    "early_stopping": False,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_tokens": 0,
    **OFF,
}
PROCESSORS = (
    "bad_words_ids",
    "begin_suppress_tokens",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "exponential_decay_length_penalty",
    "renormalize_logits",
    "suppress_tokens",
)
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {  # with the values that ask for nothing
    "constraints": ([],),
    "dola_layers": (),
    "force_words_ids": ([],),
    "forced_decoder_ids": ([],),
    "guidance_scale": (1.0,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0.0,),
    "sequence_bias": ({}, []),
    "stop_strings": ([],),
    "token_healing": (False,),
    "top_h": (),
    "watermarking_config": (),
}
# Options of generation in `config.json`, which count only if no other file has any.
KEYS = frozenset(
    {*NAMES, *SAMPLING, *NOT_SAMPLED_BY, *PROCESSORS, *UNSUPPORTED}
    | {"do_sample", "max_length", "min_length", "forced_bos_token_id", "forced_eos_token_id"}
    | {"eos_token_id", "max_time", "diversity_penalty", "num_return_sequences"}
)


def generation_defaults(options: Options) -> dict[str, Any]:
    """Read those that change anything, by our names.

    Without `do_sample` the likeliest token is taken, whatever temperature stands there.
    """
    defaults = {ours: options.get(theirs) for theirs, ours in NAMES.items() if theirs in options}
    options.use(*SAMPLING, *(name for name in NOT_SAMPLED_BY if not options.values.get(name)))
    if options.flag("do_sample", False):
        defaults |= {name: options.get(name, default) for name, default in SAMPLING.items()}
    return {name: value for name, value in defaults.items() if value != NEUTRAL.get(name)}


def refuse_unsupported(options: Options) -> None:
    """Refuse options that change what is generated, and that nothing here computes."""
    for name, values in UNSUPPORTED.items():
        options.only(name, *values)
    options.use("diversity_penalty")  # of groups of beams, which are refused
    if options.values.get("num_return_sequences") == 1:
        options.use("num_return_sequences")


def logits_processors(options: Options, vocab_size: int, num_counted: int = 0) -> dict[str, Any]:
    """Read what makes every request change the scores, by the names of the manifest's
    `LogitsProcessors`.

    num_counted: tokens of a target's beginning that count as generated ones.
    """
    words = options.get("bad_words_ids", [])
    processors: dict[str, Any] = {
        "bad_words_ids": words,
        "encoder_no_repeat_ngram_size": options.integer("encoder_no_repeat_ngram_size", 0),
        "encoder_repetition_penalty": options.positive("encoder_repetition_penalty", 1.0),
        "exponential_decay_length_penalty": _length_decay(options, num_counted),
        "renormalize_logits": options.flag("renormalize_logits", False),
    }
    is_list = isinstance(words, list) and all(isinstance(word, list) and word for word in words)
    token_ids = [token_id for word in words for token_id in word] if is_list else [None]
    if not all(type(i) is int and 0 <= i < vocab_size for i in token_ids):
        options.refuse("bad_words_ids", f"must be lists of tokens below vocab_size {vocab_size}")
        processors["bad_words_ids"] = []
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        # transformers takes an id of no token to name nothing.
        processors[name] = [i for i in dict.fromkeys(options.ids(name)) if 0 <= i < vocab_size]
    if processors["encoder_repetition_penalty"] == 1:
        del processors["encoder_repetition_penalty"]
    return {name: value for name, value in processors.items() if value}


def _length_decay(options: Options, num_counted: int) -> dict[str, Any] | None:
    name = "exponential_decay_length_penalty"
    match options.get(name):
        case None:
            return None
        case [int(start), int(factor) | float(factor)] if 0 < factor < LARGEST:
            return {"start": start - num_counted, "factor": float(factor)}
    options.refuse(name, "must be the number of a token and a factor above 0")
    return None


def forced_eos(options: Options, stop: tuple[int, ...]) -> int | None:
    """Read which token ends a text that its length ends; None if any may stand there."""
    name = "forced_eos_token_id"
    ids = options.ids(name)
    if not {*ids} <= {*stop}:
        options.refuse(name, "must be an eos_token_id")
    return min(ids, default=None)  # the one that transformers takes of several


def stop_ids(folder: Folder, vocab_size: float) -> tuple[int, ...]:
    """Return every token that a file names as an end of texts, the tokenizer's first: it is what
    texts are written with. What the model has no token for ends nothing, as a note says.
    """
    if "vocab_size" not in folder.config:  # which is a problem of its own
        vocab_size = math.inf
    named: list[tuple[Options, int]] = []
    token = token_text(folder.tokenizer.get("eos_token"))
    if token and folder.tokenizers is not None:
        ids = token_ids(folder.tokenizers.target or folder.tokenizers.source)
        if token in ids:
            named.append((folder.tokenizer, ids[token]))
        else:
            folder.notes.append(NO_END.format(file=folder.tokenizer.file, end=repr(token)))
    for options in (folder.generation, folder.config):
        named += [(options, i) for i in options.ids("eos_token_id") if i >= 0]
    for options, token_id in named:
        if token_id >= vocab_size:
            folder.notes.append(NO_END.format(file=options.file, end=token_id))
    return tuple(dict.fromkeys(token_id for _, token_id in named if token_id < vocab_size))


def _whole(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


OF_CONFIG = _whole(
    # where it comes from, and with which program
    r"_\w+|architectures|attn_implementation|auto_map|dtype|finetuning_task|model_type|torch_dtype",
    r"tokenizer_class|transformers_version|unsloth_\w+|use_bfloat16|transformers\.js_config",
    r"processor_class",
    # training
    r"\w*dropout(_prob|_rate)?|\w*pdrop|dropout_\w+|\w*layerdrop|initializer_\w+|init_std",
    r"gradient_checkpointing|tf_legacy_loss|rescale_prenorm_residual|time_step_(min|max|rank|floor)",
    # what is returned, and in which pieces it is computed
    r"output_\w+|return_dict\w*|use_return_dict|torchscript|use_cache|chunk_size(_feed_forward)?",
    r"pretraining_tp|reorder_and_upcast_attn|residual_in_fp32|use_mamba_kernels|cache_implementation",
    r"extra_pos_embeddings|fused_add_norm|pad_vocab_size_multiple|rms_norm|ssm_cfg|time_step_\w+scheme",
    # heads of other tasks, and names for classes that a generating model does not have
    r"classif_dropout|classifier_\w+|summary_\w+|id2label|label2id|num_labels|problem_type",
    r"is_decoder|add_cross_attention|cross_attention_hidden_size",
    r"task_specific_params(\..*)?|sep_token_id|is_encoder_decoder|tie_encoder_decoder",
    # sizes that follow from others
    r"n_ctx|n_head|n_layer|n_embd|num_hidden_layers|max_length|vocab_size|ignore_keys_at_rope_\w+",
)
OF_GENERATION = _whole(
    r"_\w+|transformers_version|trust_remote_code",
    r"(pad|bos)_token_id|decoder_start_token_id",
    r"output_\w+|return_dict_in_generate|is_assistant|remove_invalid_values|low_memory",
    r"use_cache|cache_\w+|max_cache_len|prefill_chunk_size|compile_config|disable_compile",
    r"continuous_batching_config|use_mtp|speculation_type|prompt_lookup_num_tokens",
    r"\w*assistant_\w+|max_matching_ngram_size|target_lookbehind",
)
OF_TOKENIZER = _whole(
    r"_\w+|tokenizer_class|auto_map|transformers_version|processor_class|name_or_path",
    r"special_tokens_map_file|tokenizer_file|vocab_file|merges_file|backend|is_local\w*|local_files_only",
    r"(bos|eos|unk|pad|sep|cls|mask|\w*image|\w*video|\w*audio|\w*vision\w*)_token(_id)?",
    r"added_tokens_decoder|(additional|extra|model_specific)_special_tokens|added_tokens",
    r"model_input_names|model_max_length|max_length|stride|truncation\w*|pad(ding)?_\w+|pad_to_\w+",
    r"sp_model_kwargs|separate_vocabs|legacy|use_fast|from_slow|errors|spaces_between_special_tokens",
    r"clean_up_tokenization_spaces|split_special_tokens|use_default_system_prompt|extra_ids",
    r"source_lang|target_lang|src_lang|tgt_lang|language_codes|num_madeup_words",
    r"add_(prefix_space|bos_token|eos_token)|add_dummy_prefix_space",
    r"do_(lower_case|basic_tokenize)|never_split|strip_accents|tokenize_chinese_chars|wordpieces_prefix",
    r"max_len|trim_offsets|normalization|return_token_type_ids|chat_template",
)
