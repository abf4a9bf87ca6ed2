"""Options of the Llama-shaped language model."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Conflict, Positive, Section, Size
from models.configs.transformer import (
    Activation,
    Experts,
    Frequencies,
    LayerNumbers,
    RotaryConfig,
    RotaryImports,
)

LATENT_EPSILON = 1e-6  # of the norms in latent attention, in all models that have it
OF_FULL_KEYS = (  # options that latent attention does not have
    "attention_bias",
    "attention_sinks",
    "layers_without_rotation",
    "qk_norm",
    "query_growth",
    "window_frequencies",
)


class QueryGrowth(Section):
    """Queries grow by `rate` with the logarithm of how many times `length` their position is."""

    rate: Positive
    length: Size


class LatentAttention(Section):
    """Keys and values of all heads are products of one vector of `size` numbers for each token, and
    the part of a key that is rotated is the same in all heads (DeepSeek-AI 2024, V2 2.1).

    query_size: the size of a vector that queries are products of; None: of the layer's input.
    value_size: of a head.
    """

    size: Size
    query_size: Size | None = None
    value_size: Size


class LlamaImports(RotaryImports):
    """Options of Qwen, Gemma, gpt-oss, DeepSeek, OLMo, Hunyuan, Ministral 3, Phi-3 and SmolLM3,
    beyond Touvron et al. 2023.
    """

    attention_bias: Literal["none", "qkv", "all"] = "none"
    ffn_bias: bool = False
    gated_ffn: bool = True
    qk_norm: bool = False  # each head's queries and keys are normalised before they are rotated
    qk_norm_spans_heads: bool = False  # those of all heads together (OLMo 2)
    qk_norm_after_rotation: bool = False  # not before it (Hunyuan)
    query_growth: QueryGrowth | None = None
    sandwich_norms: bool = False  # sublayers are normalised before and after (Gemma 2)
    input_norms: bool = True  # False: sublayers are normalised after only, not before (OLMo 2)
    embedding_scale: Positive = 1.0
    attention_cap: Positive | None = None  # scores become cap * tanh(score / cap)
    latent_attention: LatentAttention | None = None
    attention_sinks: bool = False  # each head has a score beside those of the tokens (gpt-oss)
    logit_cap: Positive | None = None
    layers_without_window: LayerNumbers = ()
    layers_without_rotation: LayerNumbers = ()
    window_frequencies: Frequencies | None = None  # of layers with a window, if they differ
    experts: Experts | None = None
    layers_without_experts: LayerNumbers = ()


class LlamaConfig(RotaryConfig):
    """Decoder-only language model with RoPE, RMSNorm, grouped-query attention and SwiGLU (Touvron
    et al. 2023).
    """

    architecture: Literal["llama"] = "llama"
    num_kv_heads: Size = 2
    norm_epsilon: Positive = 1e-5
    activation: Activation = "swish"  # of the gate
    imported: LlamaImports = LlamaImports()

    def window_of(self, layer: int) -> int | None:
        return None if layer in self.imported.layers_without_window else self.window

    def table_of(self, layer: int) -> tuple[tuple[float, ...], float]:
        """Return the frequencies of the pairs that the layer rotates, and their magnitude."""
        if layer in self.imported.layers_without_rotation:
            return (), 1.0
        local = self.imported.window_frequencies
        if local is not None and self.window_of(layer) is not None:
            return local, 1.0
        return self.frequencies, self.imported.rotary_magnitude

    def experts_of(self, layer: int) -> Experts | None:
        """Return the experts of a layer; None if it has one feed-forward network."""
        return None if layer in self.imported.layers_without_experts else self.imported.experts

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        yield from self.must_be_multiple("num_heads", "num_kv_heads")
        yield from self.excess_pairs("window_frequencies")
        for field in ("layers_without_window", "layers_without_rotation", "layers_without_experts"):
            yield from self.missing_layers(field, getattr(self.imported, field))
        yield from self._norm_conflicts()
        if self.imported.latent_attention is not None:
            yield from self._conflicts_of_latents(self.imported.latent_attention)

    def _norm_conflicts(self) -> Iterator[Conflict]:
        imported = self.imported
        tables = {self.table_of(layer) for layer in range(self.num_layers)}
        if imported.qk_norm_after_rotation and len(tables) > 1:
            message = "imported.qk_norm_after_rotation needs one rotation of all layers"
            yield Conflict(("imported",), message)
        for option in ("qk_norm_after_rotation", "qk_norm_spans_heads"):
            if getattr(imported, option) and not imported.qk_norm:
                yield Conflict(("imported",), f"imported.{option} needs imported.qk_norm")
        if not (imported.input_norms or imported.sandwich_norms):
            message = "imported.input_norms false needs imported.sandwich_norms"
            yield Conflict(("imported",), message)

    def _conflicts_of_latents(self, latent: LatentAttention) -> Iterator[Conflict]:
        yield from self.must_be_equal("num_kv_heads", "num_heads", "latent attention")
        for option in OF_FULL_KEYS:
            if getattr(self.imported, option) != LlamaImports.model_fields[option].default:
                message = f"imported.{option} is not there for imported.latent_attention"
                yield Conflict(("imported",), message)
        if 2 * len(self.frequencies) >= self.head_size:
            message = f"imported.latent_attention: heads of {self.head_size} are rotated as a whole"
            yield Conflict(("imported", "head_dim"), message)
        if latent.value_size > self.head_size:
            message = f"imported.latent_attention: values must not exceed heads of {self.head_size}"
            yield Conflict(("imported", "head_dim"), message)
