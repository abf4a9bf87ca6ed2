"""CTranslate2's TransformerDecoderSpec: language models of Llama's and GPT-2's shapes.

A model with rotary positions and RMSNorm is a Llama here (Mistral, Qwen 2 and 3, Gemma 1), one with
a table of positions and LayerNorm a GPT-2 (OPT). `tokenizer.json` must lie beside `model.bin`:
CTranslate2 leaves texts to others.
"""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from export.readers.common.checkpoint_files import add_notes, checkpoint_files, write_card
from export.readers.common.language_model_shapes import language_model_shapes
from export.readers.common.options import MOST_LAYERS, Options
from export.readers.common.weights import (
    ZEROS,
    Change,
    StoredTensors,
    Table,
    TensorReference,
    WeightReader,
    WeightSource,
    read_weights,
)
from export.readers.ctranslate2.container import ModelFile
from export.readers.ctranslate2.files import FolderFiles, read_content, read_object
from export.readers.ctranslate2.vocabularies import (
    read_added_tokens,
    read_tokenizer,
    read_tokens,
)
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.checkpoint import TOKENIZER_FILE, Checkpoint, CheckpointError
from models.conventions import Conventions
from models.safetensors import Array, Arrays

CONFIG_FILE, VOCABULARY = "config.json", "vocabulary"
TOKENIZER_CONFIG_FILE, TEMPLATE_FILE = "tokenizer_config.json", "chat_template.jinja"
ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}  # theirs -> ours
LAYER, FIRST = "decoder/layer_*", "decoder/layer_0"
ATTENTION = f"{FIRST}/self_attention"
POSITIONS = "decoder/position_encodings/encodings"
DEFAULT_CONTEXT = 4096  # of rotary positions, which have no end
LINEAR_SCALING, LLAMA3_SCALING = 0, 2
REFUSED = {  # parts of variables' names, and the feature that they are of
    "shared_layer_norm": "attention and feed-forward networks side by side",
    "input_layer_norm": "other norms than one before each sublayer",
    "relative_position_keys": "relative positions of Shaw et al. 2018",
    "relative_asymmetric_position_keys": "asymmetric relative positions",
    "relative_attention_bias": "relative positions of T5 in a language model",
    "v_norm": "norms of values",
    "layernorm_embedding": "a norm of the embeddings",
    "project_in": "projections of the embeddings",
    "final_logit_softcapping": "limits of the scores",
    "rotary_scaling_long_factor": "LongRoPE",
    "queries_scale": "another scale of attention's scores",
    "scale_outputs": "scaled outputs",
    "attention": "attention to a source",
}


def read_language_model(
    path: Path, folder: Path, model: ModelFile, context_length: int | None
) -> Checkpoint:
    """Read a language model, its weights still unread. Raises CheckpointError with every problem.

    context_length: the most tokens that it shall read, if not as many as it could.
    """
    return _LanguageModelReader(path, folder, model, context_length).read_checkpoint()


class _LanguageModelReader:
    """Reads one model. Everything that is wrong is added to `problems`."""

    def __init__(
        self, path: Path, folder: Path, model: ModelFile, context_length: int | None
    ) -> None:
        self._path, self._model, self._asked_length = path, model, context_length
        self._files = FolderFiles(folder)
        self._problems: list[str] = []
        self._notes: list[str] = []
        is_new = model.version >= 6
        values = read_object(self._files, CONFIG_FILE, self._problems, is_required=is_new)
        self._config = Options(CONFIG_FILE, values, self._problems)
        self._tensors = StoredTensors(model.tensors, self._problems)
        self._scalars = {**model.scalars}
        if model.revision < 2:
            for name in ("num_heads", "pre_norm", "activation"):
                if (value := self._scalars.pop(name, None)) is not None:
                    self._scalars[f"decoder/{name}"] = value

    def read_checkpoint(self) -> Checkpoint:
        self._refuse_features()
        num_tokens = self._shape("decoder/embeddings/weight")[0]
        unknown = self._config.word("unk_token", "<unk>")
        tokens = read_tokens(self._files, VOCABULARY, num_tokens, unknown, self._problems)
        tokenizer = read_tokenizer(self._files, (tokens,), self._problems) if tokens else None
        if TOKENIZER_FILE not in self._files:
            self._problems.append(f"copy {TOKENIZER_FILE} from the folder it was converted from")
        self._raise_problems()
        bos, eos = (
            tokens.index(token) if (token := self._config.word(name, default)) in tokens else None
            for name, default in (("bos_token", "<s>"), ("eos_token", "</s>"))
        )
        if eos is None:
            self._problems.append("eos_token is not in the vocabulary")
        values = self._read_llama() if self._is_rotary else self._read_gpt2()
        prefix, _ = read_added_tokens(tokenizer or b"", self._problems)
        self._raise_problems()
        end = eos or 0
        config = self._make_config(
            values | {"eos_id": end, "pad_id": end, "bos_id": end if bos is None else bos}
        )
        weights = self._read_weights(config)
        self._raise_problems()
        facts = [f"Vocabulary: {num_tokens:,} tokens"]
        origin = f"Imported from the CTranslate2 model `{self._path.resolve().name}`, which says"
        card = write_card(self._path.resolve().name, f"{origin} nothing about its licence.", *facts)
        checkpoint = Checkpoint(
            self._path,
            config,
            Arrays(weights),
            Conventions(
                prompt_prefix=prefix, stop=(end,), chat_template=self._read_chat_template()
            ),
            checkpoint_files(card, tokenizer or b""),
            bits=self._model.bits,
        )
        return add_notes(checkpoint, self._notes)

    def _raise_problems(self) -> None:
        if self._problems:
            raise CheckpointError(self._path, list(dict.fromkeys(self._problems)))

    def _refuse_features(self) -> None:
        parts = {
            part for name in (*self._model.tensors, *self._scalars) for part in name.split("/")
        }
        features = {feature for part, feature in REFUSED.items() if part in parts}
        if self._scalars.get("decoder/alibi", 0):
            features.add("linear biases of scores (ALiBi)")
        if not self._scalars.get("decoder/pre_norm", 1):
            features.add("norms after sublayers")
        is_rms = f"{ATTENTION}/layer_norm/beta" not in self._tensors
        if self._is_rotary and not is_rms:
            features.add("rotary positions with LayerNorm")
        if self._is_rotary and self._scalars.get(f"{ATTENTION}/rotary_interleave", 1):
            features.add("rotary positions of neighbouring pairs")
        if not self._is_rotary and (is_rms or POSITIONS not in self._tensors):
            features.add("positions that are neither rotary nor a table with LayerNorm")
        if not self._is_rotary and f"{FIRST}/ffn/linear_0_noact/weight" in self._tensors:
            features.add("gated networks with a table of positions")
        self._problems += [
            f"model.bin: {feature} are not supported" for feature in sorted(features)
        ]

    @property
    def _is_rotary(self) -> bool:
        return f"{ATTENTION}/rotary_dim" in self._scalars

    def _shape(self, name: str) -> tuple[int, int]:
        """Return a matrix's shape; (1, 1), and a problem, if there is no such matrix."""
        stored = self._tensors.stored.get(name)
        if stored is None or len(stored.shape) != 2 or not min(stored.shape):
            self._problems.append(f"{name} is {'missing' if stored is None else 'no matrix'}")
            return 1, 1
        return stored.shape[0], stored.shape[1]

    def _read_sizes(self) -> dict[str, Any]:
        """Return the options that both shapes have."""
        layers = range(MOST_LAYERS)
        output, embedding = "decoder/projection/weight", "decoder/embeddings/weight"
        ffn_dim, d_model = self._shape(f"{FIRST}/ffn/linear_0/weight")
        activation = int(self._scalars.get("decoder/activation", 0))
        if activation not in ACTIVATIONS:
            self._problems.append(f"model.bin: the activation {activation} is not supported")
        is_tied = output not in self._tensors or not self._tensors.differ(embedding, output)
        is_layer_norm = f"{ATTENTION}/layer_norm/beta" in self._tensors
        return {
            "vocab_size": self._shape(embedding)[0],
            "d_model": d_model,
            "num_layers": next(
                (
                    n
                    for n in layers
                    if f"decoder/layer_{n}/ffn/linear_0/weight" not in self._tensors
                ),
                MOST_LAYERS,
            ),
            "num_heads": int(self._scalars.get("decoder/num_heads", 8)),
            "ffn_dim": ffn_dim,
            "norm_epsilon": self._config.positive(
                "layer_norm_epsilon", 1e-5 if is_layer_norm else 1e-6
            ),
            "activation": ACTIVATIONS.get(activation, "relu"),
            "tied_embeddings": is_tied,
        }

    def _read_llama(self) -> dict[str, Any]:
        sizes, scalars = self._read_sizes(), self._scalars
        head_dim = int(scalars.get(f"{ATTENTION}/head_dim", 0))
        head_size = head_dim or sizes["d_model"] // max(sizes["num_heads"], 1)
        rotary_dim = int(scalars[f"{ATTENTION}/rotary_dim"])
        if rotary_dim not in (0, head_size):
            self._problems.append(
                "model.bin: rotary positions of a part of a head are not supported"
            )
        window = int(
            scalars.get(f"{ATTENTION}/sliding_window", scalars.get("decoder/sliding_window", 0))
        )
        longest = int(scalars.get(f"{ATTENTION}/max_position_embeddings", 0))
        context_length = self._asked_length or longest or DEFAULT_CONTEXT
        if not self._asked_length and not longest:
            self._notes.append(
                f"the file does not say how long texts may be: the context is {DEFAULT_CONTEXT}"
                " tokens, and --context-length sets another"
            )
        return {
            **sizes,
            "architecture": "llama",
            "context_length": context_length,
            "num_kv_heads": int(scalars.get(f"{ATTENTION}/num_heads_kv", sizes["num_heads"])),
            "head_dim": head_dim or None,
            "window": min(window, context_length) if window else None,
            "rope_theta": float(scalars.get(f"{ATTENTION}/rotary_base", 10000.0)),
            "imported": {
                "rotary_frequencies": self._read_frequencies(head_size),
                "attention_bias": self._read_attention_bias(),
                "ffn_bias": f"{FIRST}/ffn/linear_0/bias" in self._tensors,
                "gated_ffn": f"{FIRST}/ffn/linear_0_noact/weight" in self._tensors,
                "qk_norm": f"{ATTENTION}/q_norm/gamma" in self._tensors,
                "embedding_scale": self._read_embedding_scale(sizes["d_model"]),
            },
        }

    def _read_attention_bias(self) -> str:
        if f"{ATTENTION}/linear_1/bias" in self._tensors:
            return "all"
        return "qkv" if f"{ATTENTION}/linear_0/bias" in self._tensors else "none"

    def _read_frequencies(self, head_size: int) -> tuple[float, ...] | None:
        """Return the rotary frequencies of a model whose positions were rescaled; None for others.

        As CTranslate2's src/layers/attention_layer.cc computes them.
        """
        scalars = self._scalars
        kind = int(scalars.get(f"{ATTENTION}/rotary_scaling_type", -1))
        if kind < 0:
            return None
        base = float(scalars.get(f"{ATTENTION}/rotary_base", 10000.0))
        factor = float(scalars.get(f"{ATTENTION}/rotary_scaling_factor", 1.0))
        if base <= 0 or factor <= 0:
            self._problems.append(
                "model.bin: rotary_base and rotary_scaling_factor must be above 0"
            )
            return None
        plain = base ** (-np.arange(0, head_size, 2) / head_size)
        if kind == LINEAR_SCALING:
            return (*map(float, plain / factor),)
        if kind != LLAMA3_SCALING:
            self._problems.append(f"model.bin: rotary_scaling_type {kind} is not supported")
            return None
        slow = float(scalars.get(f"{ATTENTION}/rotary_low_freq_factor", 1.0))
        fast = float(scalars.get(f"{ATTENTION}/rotary_high_freq_factor", 4.0))
        length = int(scalars.get(f"{ATTENTION}/original_max_position_embeddings", 0))
        if fast <= slow:
            self._problems.append("model.bin: rotary_high_freq_factor must be above the low one")
            return None
        smooth = np.clip((length * plain / (2 * math.pi) - slow) / (fast - slow), 0, 1)
        return (*map(float, (1 - smooth) * plain / factor + smooth * plain),)

    def _read_embedding_scale(self, d_model: int) -> float:
        scale = self._scalars.get("decoder/scale_embeddings", 1)
        # An integer says whether there is the usual scale, a float is the scale itself.
        if isinstance(scale, int):
            return math.sqrt(d_model) if scale else 1.0
        return float(scale)

    def _read_gpt2(self) -> dict[str, Any]:
        sizes = self._read_sizes()
        if self._read_embedding_scale(sizes["d_model"]) != 1.0:
            self._problems.append("model.bin: scaled embeddings beside a table of positions")
        longest = self._shape(POSITIONS)[0]
        if self._asked_length is not None and not 2 <= self._asked_length <= longest:
            self._problems.append(
                f"context length {self._asked_length} is not one of 2 to {longest}"
            )
        return {
            **sizes,
            "architecture": "gpt2",
            "context_length": self._asked_length or longest,
        }

    def _make_config(self, values: dict[str, Any]) -> AnyConfig:
        try:
            return parse_config(values)
        except ModelConfigError as error:
            raise CheckpointError(self._path, error.problems) from None

    def _read_weights(self, config: Any) -> dict[str, WeightReader]:
        names: dict[Any, str | WeightSource] = {
            "embedding": TensorReference("decoder/embeddings/{}"),
            "output": TensorReference("decoder/projection/{}"),
            "norm": _norm("decoder/layer_norm"),
            "layers.*.attention_norm": _norm(f"{LAYER}/self_attention/layer_norm"),
            "layers.*.feed_forward_norm": _norm(f"{LAYER}/ffn/layer_norm"),
            "layers.*.attention.query_norm": _norm(f"{LAYER}/self_attention/q_norm"),
            "layers.*.attention.key_norm": _norm(f"{LAYER}/self_attention/k_norm"),
            "positions.weight": TensorReference(
                POSITIONS,
                shape=self._shape(POSITIONS) if POSITIONS in self._tensors else None,
                change=partial(_take_first_rows, count=config.context_length),
            ),
        }
        linears = {
            "self_attention/linear_0": [f"attention.{part}" for part in ("query", "key", "value")],
            "self_attention/linear_1": ["attention.output"],
            "ffn/linear_0": ["feed_forward.up"],
            "ffn/linear_1": ["feed_forward.down"],
        }
        if f"{FIRST}/ffn/linear_0_noact/weight" in self._tensors:
            linears |= {"ffn/linear_0": ["feed_forward.gate"]}
            linears |= {"ffn/linear_0_noact": ["feed_forward.up"]}
        for theirs, parts in linears.items():
            key = tuple(f"layers.*.{part}" for part in parts)
            names[key] = TensorReference(f"{LAYER}/{theirs}/{{}}")
            if config.architecture == "gpt2" and f"{FIRST}/{theirs}/bias" not in self._tensors:
                names |= {f"{name}.bias": ZEROS for name in key}
        changes: dict[str, Change] = {}
        if self._scalars.get(f"{ATTENTION}/layer_norm/layer_norm_use_residual", 0):
            for name in ("norm", "layers.*.attention_norm", "layers.*.feed_forward_norm"):
                changes[name] = _add_one
        weights = read_weights(language_model_shapes(config), Table(names, changes), self._tensors)
        if config.tied_embeddings:
            self._tensors.ignore(r"decoder/projection/weight")
        self._tensors.refuse_unused()
        return weights

    def _read_chat_template(self) -> str | None:
        """Return the template, in Jinja, that lies beside the tokenizer; None without one."""
        if TEMPLATE_FILE in self._files:
            return read_content(self._files, TEMPLATE_FILE, bytes.decode, self._problems)
        options = read_object(self._files, TOKENIZER_CONFIG_FILE, self._problems, is_required=False)
        template = options.get("chat_template")
        return template if isinstance(template, str) else None


def _norm(name: str) -> TensorReference:
    return TensorReference(f"{name}/{{}}", words=("gamma", "beta"))


def _add_one(weight: Array) -> Array:
    return weight + np.float32(1)


def _take_first_rows(table: Array, count: int) -> Array:
    return table[:count]
