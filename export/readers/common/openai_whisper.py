"""What files of openai/whisper hold, and those of whisper.cpp, which have the same sizes and names
of tensors (whisper/model.py, `ModelDimensions` and `Whisper`).

They do not say which heads align words with sound: openai/whisper knows them by the names of its
models. The sizes tell these apart, but for large-v1 and large-v2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from export.readers.common.checkpoint_files import checkpoint_files, write_card
from export.readers.common.options import MOST_LAYERS, MOST_POSITIONS, WIDEST, Options
from export.readers.common.shapes import STACKS
from export.readers.common.weights import (
    ZEROS,
    StoredTensors,
    Table,
    WeightReader,
    WeightSource,
    read_weights,
)
from export.readers.common.whisper import (
    convolution_names,
    find_suppressed_tokens,
    read_speech_tokens,
    whisper_shapes,
)
from models.architectures.registry import ModelConfigError, parse_config
from models.architectures.whisper.config import WhisperConfig
from models.checkpoint import Checkpoint, CheckpointError
from models.safetensors import Arrays, Stored

SIZES = (  # the fields of ModelDimensions, in the order in which whisper.cpp writes them
    *("n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer"),
    *("n_text_ctx", "n_text_state", "n_text_head", "n_text_layer", "n_mels"),
)
_LAYER = {
    "self_attention_norm": "attn_ln",
    "self_attention.query": "attn.query",
    "self_attention.key": "attn.key",
    "self_attention.value": "attn.value",
    "self_attention.output": "attn.out",
    "cross_attention_norm": "cross_attn_ln",
    "cross_attention.query": "cross_attn.query",
    "cross_attention.key": "cross_attn.key",
    "cross_attention.value": "cross_attn.value",
    "cross_attention.output": "cross_attn.out",
    "feed_forward_norm": "mlp_ln",
    "feed_forward.up": "mlp.0",
    "feed_forward.down": "mlp.2",
}
_NORMS = {"encoder": "ln_post", "decoder": "ln"}
# Pairs of a layer and a head (openai/whisper, `_ALIGNMENT_HEADS`), by the number of layers of the
# decoder, their size, and that of the vocabulary.
_ALIGNMENT_HEADS = {
    (4, 384, 51864): "1.0 2.0 2.5 3.0 3.1 3.2 3.3 3.4",  # tiny.en
    (4, 384, 51865): "2.2 3.0 3.2 3.3 3.4 3.5",  # tiny
    (6, 512, 51864): "3.3 4.7 5.1 5.5 5.7",  # base.en
    (6, 512, 51865): "3.1 4.2 4.3 4.7 5.1 5.2 5.4 5.6",  # base
    (12, 768, 51864): (  # small.en
        "6.6 7.0 7.3 7.8 8.2 8.5 8.7 9.0 9.4 9.8 9.10 10.0 10.1 10.2 10.3 10.6 10.11 11.2 11.4"
    ),
    (12, 768, 51865): "5.3 5.9 8.0 8.4 8.7 8.8 9.0 9.7 9.9 10.5",  # small
    (24, 1024, 51864): (  # medium.en
        "11.4 14.1 14.12 14.14 15.4 16.0 16.4 16.9 17.12 17.14 18.7 18.10 18.15 20.0 20.3 20.9"
        " 20.14 21.12"
    ),
    (24, 1024, 51865): "13.15 15.4 15.15 16.1 20.0 23.4",  # medium
    (32, 1280, 51866): "7.0 10.17 12.18 13.12 16.1 17.14 19.11 21.4 24.1 25.6",  # large-v3
    (4, 1280, 51866): "2.4 2.11 3.3 3.6 3.11 3.14",  # large-v3-turbo
}


@dataclass(frozen=True)
class OpenAIWhisper:
    """What a file holds. path: its own, for messages. sizes: by the names in `SIZES`.

    bits: so few keep the layers' matrices as the file has them; None where those are floats.
    """

    path: Path
    sizes: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    bits: Literal[4, 8] | None = None

    def read_checkpoint(self, tokenizer: bytes, ids: Mapping[str, int], kind: str) -> Checkpoint:
        """Return the checkpoint, its weights still unread. Raises CheckpointError with every
        problem.

        tokenizer: `tokenizer.json`. ids: of its tokens by their names. kind: of file, for the card.
        """
        problems: list[str] = []
        tokens = read_speech_tokens(ids, problems)
        values = _read_sizes(Options("the header", self.sizes, problems))
        if problems or tokens is None:
            raise CheckpointError(self.path, problems)
        heads = _find_alignment_heads(values)
        audio = values["audio"] | tokens.audio_options | {"alignment_heads": heads}
        try:
            config: Any = parse_config(values | tokens.options | {"audio": audio})
        except ModelConfigError as error:
            raise CheckpointError(self.path, error.problems) from None
        assert isinstance(config, WhisperConfig)
        weights = _read_weights(config, StoredTensors(self.tensors, problems))
        if problems:
            raise CheckpointError(self.path, problems)
        facts = [f"Vocabulary: {config.vocab_size:,} tokens"]
        if self.bits:
            facts.append(f"Weights: {self.bits} bits")
        origin = f"Imported from the {kind} `{self.path.name}`, which says nothing"
        card = write_card(self.path.stem, f"{origin} about its licence.", *facts)
        return Checkpoint(
            self.path,
            config,
            Arrays(weights),
            tokens.conventions(*find_suppressed_tokens(tokenizer, tokens)),
            checkpoint_files(card, tokenizer),
            bits=self.bits,
        )


def _read_sizes(options: Options) -> dict[str, Any]:
    for name in ("state", "head"):
        encoder, decoder = (options.integer(f"n_{side}_{name}") for side in ("audio", "text"))
        if encoder != decoder:
            options.refuse(f"n_text_{name}", f"must be {encoder}, as n_audio_{name}")
    d_model = options.integer("n_text_state", at_most=WIDEST)
    num_positions = options.integer("n_audio_ctx", at_most=MOST_POSITIONS)
    return {
        "architecture": "whisper",
        "vocab_size": options.integer("n_vocab"),
        "d_model": d_model,
        "num_heads": options.integer("n_text_head"),
        "ffn_dim": 4 * d_model,
        "encoder_layers": options.integer("n_audio_layer", at_most=MOST_LAYERS),
        "decoder_layers": options.integer("n_text_layer", at_most=MOST_LAYERS),
        "max_source_tokens": num_positions,
        "max_target_tokens": options.integer("n_text_ctx", at_most=MOST_POSITIONS),
        "tied_embeddings": True,
        "audio": {"num_mels": options.integer("n_mels"), "num_frames": 2 * num_positions},
    }


def _find_alignment_heads(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the heads numbered through all layers; none where the sizes are of no known model."""
    sizes = (values["decoder_layers"], values["d_model"], values["vocab_size"])
    pairs = (pair.split(".") for pair in _ALIGNMENT_HEADS.get(sizes, "").split())
    return tuple(int(layer) * values["num_heads"] + int(head) for layer, head in pairs)


def _read_weights(config: WhisperConfig, tensors: StoredTensors) -> dict[str, WeightReader]:
    names: dict[Any, str | WeightSource] = {
        **convolution_names(config, "encoder.conv{number}.{part}")
    }
    names["embedding.weight"] = "decoder.token_embedding.weight"
    for stack in STACKS:
        ours, theirs = f"{stack}.layers.*", f"{stack}.blocks.*"
        names[f"{stack}.positions.weight"] = f"{stack}.positional_embedding"
        names[f"{stack}.norm"] = f"{stack}.{_NORMS[stack]}"
        names |= {f"{ours}.{name}": f"{theirs}.{part}" for name, part in _LAYER.items()}
        names |= {f"{ours}.{name}_attention.key.bias": ZEROS for name in ("self", "cross")}
    weights = read_weights(whisper_shapes(config), Table(names), tensors)
    tensors.refuse_unused()
    return weights
