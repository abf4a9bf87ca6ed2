"""Whisper (Radford et al. 2022) and distil-whisper (Gandhi et al. 2023).

`generation_config.json` has the languages and what is suppressed; `preprocessor_config.json` how
sound becomes spectrograms. In older folders `config.json` has the first.
"""

from dataclasses import replace
from typing import Any

from export.readers.common.options import (
    MOST_POSITIONS,
    Options,
    read_options,
    unused_notes,
)
from export.readers.common.shapes import (
    STACKS,
    read_activation,
    stack_names,
)
from export.readers.common.weights import ZEROS, Names, Table, TensorReference, read_weights
from export.readers.common.whisper import (
    TIME_STEP,
    SpeechTokens,
    add_times,
    convolution_names,
    read_speech_tokens,
    whisper_shapes,
)
from export.readers.hugging_face.config_keys import OF_PROCESSOR
from export.readers.hugging_face.folder import UNTIED, Folder
from export.readers.hugging_face.generation_settings import (
    generation_defaults,
    logits_processors,
    refuse_unsupported,
)
from export.readers.hugging_face.tokenizers import Tokenizers, token_ids
from export.readers.hugging_face.translators import read_stack_sizes
from models.architectures.whisper.config import WhisperConfig
from models.checkpoint import Checkpoint
from models.conventions import Conventions

PROCESSOR_FILE, NEWER_PROCESSOR_FILE = "preprocessor_config.json", "processor_config.json"
WORDS, OUTPUT = "model.decoder.embed_tokens.weight", "proj_out.weight"
# What transcripts begin with follows from each request.
_SAID_BY_REQUESTS = ("forced_decoder_ids", "language", "task", "return_timestamps")
_OF_OTHER_HEADS = ("classifier_proj_size", "use_weighted_layer_sum", "median_filter_width")


def read_whisper(folder: Folder) -> Checkpoint:
    """Raise CheckpointError with every problem."""
    folder.check_head("ForConditionalGeneration")
    options = folder.config
    options.use(*_OF_OTHER_HEADS, "apply_spec_augment", "scale_embedding")  # read by nothing
    for name in [name for name in options.values if name.startswith("mask_")]:
        options.use(name)
    sizes = _read_sizes(folder)
    if folder.tokenizers is not None:
        times = add_times(folder.tokenizers.source, sizes["max_source_tokens"] + 1)
        folder = replace(folder, tokenizers=Tokenizers(times))
    tokens = _read_tokens(folder)
    if tokens is None:
        folder.fail()
    audio = tokens.audio_options | _read_audio(folder) | _read_alignment_heads(folder)
    config: Any = folder.make_config(
        sizes | tokens.options | {"tied_embeddings": _is_tied(folder), "audio": audio}
    )
    weights = read_weights(whisper_shapes(config), _list_names(config), folder.tensors)
    return folder.checkpoint(config, weights, _read_conventions(folder, config, tokens))


def _read_sizes(folder: Folder) -> dict[str, Any]:
    options = folder.config
    return {
        "architecture": "whisper",
        "vocab_size": options.integer("vocab_size"),
        **read_stack_sizes(options),
        "max_source_tokens": options.integer("max_source_positions", at_most=MOST_POSITIONS),
        "max_target_tokens": options.integer("max_target_positions", at_most=MOST_POSITIONS),
        "activation": read_activation(options, "activation_function", "gelu"),
    }


def _read_tokens(folder: Folder) -> SpeechTokens | None:
    """Return the special tokens; None, and a problem, if there are not all of them. What
    `generation_config.json` says of languages counts more than the names of tokens.
    """
    if folder.tokenizers is None:
        return None
    options, by_token = folder.generation, folder.generation.section("lang_to_id")
    options.use("task_to_id", "prev_sot_token_id")  # the tokenizer has them
    tokens = read_speech_tokens(token_ids(folder.tokenizers.source), folder.problems)
    if tokens is None:
        return None
    for part in (folder.generation, folder.config):
        for name, token_id in (
            ("decoder_start_token_id", tokens.start),
            ("no_timestamps_token_id", tokens.no_timestamps),
            ("eos_token_id", tokens.end),
        ):
            if {*part.ids(name)} - {token_id}:
                part.refuse(name, f"must be {token_id}, as in the tokenizer")
    if not options.flag("is_multilingual", bool(tokens.languages)):
        return replace(tokens, languages={})
    languages = {name.strip("<|>"): by_token.integer(name) for name in by_token.values}
    return replace(tokens, languages=languages or tokens.languages)


def _read_audio(folder: Folder) -> dict[str, Any]:
    """Return how sound becomes spectrograms: all published models differ in the number of bands
    alone.
    """
    num_mels = folder.config.integer("num_mel_bins", 80)
    options = _open_processor(folder)
    options.only("feature_extractor_type", "WhisperFeatureExtractor")
    options.only("sampling_rate", 16000)
    options.only("padding_value", 0.0)
    options.only("dither", 0.0)
    if options.integer("feature_size", num_mels) != num_mels:
        options.refuse("feature_size", f"must be num_mel_bins {num_mels}")
    hop, fft_size = options.integer("hop_length", 160), options.integer("n_fft", 400)
    num_frames = options.integer("chunk_length", 30) * 16000 // max(hop, 1)
    step = folder.generation.integer("max_initial_timestamp_index", 50)
    folder.notes.extend(unused_notes(options, OF_PROCESSOR))
    return {
        "sampling_rate": 16000,
        "num_mels": num_mels,
        "num_frames": num_frames,
        "hop": hop,
        "fft_size": fft_size,
        "max_initial_timestamp": step * TIME_STEP,
    }


def _open_processor(folder: Folder) -> Options:
    """Open either file; the newer one has a section."""
    newer = folder.path / NEWER_PROCESSOR_FILE
    if newer.is_file() and not (folder.path / PROCESSOR_FILE).is_file():
        return read_options(newer, folder.problems).section("feature_extractor")
    return read_options(folder.path / PROCESSOR_FILE, folder.problems)


def _read_alignment_heads(folder: Folder) -> dict[str, list[int]]:
    """Return the numbers of the heads, through all layers; theirs are pairs of layer and head."""
    name, options = "alignment_heads", folder.generation
    pairs, num_heads = options.get(name, []), folder.config.integer("decoder_attention_heads")
    heads = [
        layer * num_heads + head
        for layer, head in (pair for pair in pairs if isinstance(pair, list) and len(pair) == 2)
        if type(layer) is int and type(head) is int and 0 <= head < num_heads and layer >= 0
    ]
    if len(heads) < len(pairs):
        options.refuse(name, "must be pairs of a layer and one of its heads")
    return {name: sorted(heads)} if heads else {}


def _is_tied(folder: Folder) -> bool:
    """If an output table is stored with other numbers, it is used, as in transformers 5."""
    is_tied, tensors = folder.config.flag("tie_word_embeddings", True), folder.tensors
    tensors.prefix = "model."
    if OUTPUT not in tensors:
        return is_tied
    differ = tensors.differ(WORDS, OUTPUT)
    if is_tied and differ:
        note = UNTIED.format(file=folder.config.file).replace("lm_head.weight", OUTPUT)
        folder.notes.append(note)
    return not differ


def _list_names(config: WhisperConfig) -> Table:
    names: dict[Any, Any] = {**stack_names("model.")}
    names |= convolution_names(config, "model.encoder.conv{number}.{part}")
    for stack in STACKS:
        names[f"{stack}.positions"] = f"model.{stack}.embed_positions"
    for attention in ("encoder.layers.*.self", "decoder.layers.*.self", "decoder.layers.*.cross"):
        names[f"{attention}_attention.key.bias"] = ZEROS
    vocabulary: Names = {
        "embedding.weight": TensorReference((WORDS, OUTPUT)),
        "target_embedding.weight": WORDS,
        "output.weight": OUTPUT,
    }
    return Table({**names, **vocabulary}, prefix="model.")


def _read_conventions(folder: Folder, config: WhisperConfig, tokens: SpeechTokens) -> Conventions:
    options = folder.defaults
    for part in (folder.generation, folder.config):
        part.use(*_SAID_BY_REQUESTS, "max_length", "bos_token_id", "pad_token_id")
    refuse_unsupported(options, except_for=_SAID_BY_REQUESTS)
    return Conventions(
        prompt_prefix=(tokens.start,),
        stop=(tokens.end,),
        generation={"temperature": 0.0, **generation_defaults(options)},
        logits_processors=logits_processors(options, config.vocab_size),
    )
