"""Configurations of the architectures: sizes and options, no torch.

A checkpoint's `config.json` is one of these, told apart by `architecture`. All problems of a
configuration are reported together (pydantic); unknown keys are refused.
"""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Size = Annotated[int, Field(gt=0)]
Config = TypeVar("Config", bound=BaseModel)


class SpecialTokens(BaseModel):
    """Ids that every tokenizer of ours begins with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2


class TranslationModelConfig(SpecialTokens):
    """What all sequence-to-sequence configurations share."""

    task: Literal["translate"] = "translate"
    source_languages: tuple[str, ...] = ("en",)
    target_languages: tuple[str, ...] = ("fr",)
    vocab_size: Size
    max_source_tokens: Size = 256
    max_target_tokens: Size = 256
    dropout: Fraction = 0.1


class TransformerConfig(TranslationModelConfig):
    """Encoder-decoder Transformer (Vaswani et al. 2017)."""

    architecture: Literal["transformer"] = "transformer"
    d_model: Size = 256
    num_heads: Size = 4
    ffn_dim: Size = 1024
    encoder_layers: Size = 4
    decoder_layers: Size = 2
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu"] = "relu"
    tied_embeddings: bool = True

    @model_validator(mode="after")
    def _sizes_divide(self) -> Self:
        problems = _head_problems(self.d_model, self.num_heads)
        if self.d_model % 2:
            problems.append(f"d_model {self.d_model} must be even")
        return _refuse(self, problems)

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads


class BahdanauConfig(TranslationModelConfig):
    """RNNsearch (Bahdanau et al. 2015): bidirectional GRU encoder, additive attention."""

    architecture: Literal["bahdanau"] = "bahdanau"
    embedding_dim: Size = 256
    hidden_dim: Size = 256
    attention_dim: Size = 256
    readout_dim: Size = 256
    tied_embeddings: bool = True

    @model_validator(mode="after")
    def _tying_fits(self) -> Self:
        if self.tied_embeddings and self.readout_dim != self.embedding_dim:
            return _refuse(
                self,
                [
                    f"tied_embeddings needs readout_dim {self.readout_dim} "
                    f"= embedding_dim {self.embedding_dim}"
                ],
            )
        return self


class LlamaConfig(SpecialTokens):
    """Decoder-only language model with RoPE, RMSNorm, grouped-query attention and SwiGLU."""

    architecture: Literal["llama"] = "llama"
    task: Literal["generate"] = "generate"
    languages: tuple[str, ...] = ("en",)
    vocab_size: Size
    d_model: Size = 256
    num_layers: Size = 4
    num_heads: Size = 4
    num_kv_heads: Size = 2
    ffn_dim: Size = 512
    context_length: Size = 512
    rope_theta: float = Field(default=10000.0, gt=0)
    norm_epsilon: float = Field(default=1e-5, gt=0)
    tied_embeddings: bool = True
    dropout: Fraction = 0.0

    @model_validator(mode="after")
    def _sizes_divide(self) -> Self:
        problems = _head_problems(self.d_model, self.num_heads)
        if self.num_heads % self.num_kv_heads:
            problems.append(
                f"num_heads {self.num_heads} must be a multiple of num_kv_heads {self.num_kv_heads}"
            )
        if not problems and self.head_dim % 2:
            problems.append(f"head_dim {self.head_dim} must be even for RoPE")
        return _refuse(self, problems)

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads


ModelConfig = Annotated[
    TransformerConfig | BahdanauConfig | LlamaConfig, Field(discriminator="architecture")
]
MODEL_CONFIG: TypeAdapter[TransformerConfig | BahdanauConfig | LlamaConfig] = TypeAdapter(
    ModelConfig
)


def _head_problems(d_model: int, num_heads: int) -> list[str]:
    if d_model % num_heads:
        return [f"d_model {d_model} must be a multiple of num_heads {num_heads}"]
    return []


def _refuse(config: Config, problems: list[str]) -> Config:
    if problems:
        raise ValueError("; ".join(problems))
    return config
