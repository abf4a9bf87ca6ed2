"""Small random encoder-decoders of `transformers`, saved as folders: one of each kind that is read.

folder = save(FAMILIES["nllb"], tmp_path / "nllb")
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    LongT5Config,
    LongT5ForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    T5GemmaConfig,
    T5GemmaForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

VOCABULARY = 120
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
}
T5_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
TEXT = -1  # where a source's text stands among the ids of its layout


@dataclass(frozen=True)
class Family:
    """make: of a configuration, made with `sizes`. special: tokens by id, languages among them.

    source: layout of a source in the languages `source_language` and `target_language`. prompt:
    what its target begins with. options: of `generate`, for the same target.
    """

    make: Callable[..., PreTrainedModel]
    config: Callable[..., Any]
    sizes: dict[str, Any]
    special: dict[str, int]
    source: tuple[int, ...]
    prompt: tuple[int, ...]
    source_language: str = "und"
    target_language: str = "und"
    options: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    has_own_output: bool = False
    embedding: float = 0.4
    seed: int = 0
    tokenizer: dict[str, Any] = field(default_factory=dict)

    def model(self) -> PreTrainedModel:
        """Every weight random, of a size that makes it matter; </s> comes now and then."""
        torch.manual_seed(self.seed)
        model = self.make(self.config(**self.sizes)).eval()
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:  # not so the sinusoids
                _draw(name, parameter, self.embedding)
        if "final_logits_bias" in dict(model.named_buffers()):
            model.final_logits_bias.normal_()
        with torch.no_grad():
            model.get_output_embeddings().weight[self.special["</s>"]] *= 2.5
        if self.has_own_output:
            output = model.get_output_embeddings()
            output.weight = torch.nn.Parameter(torch.randn_like(output.weight) * self.embedding)
        for name, value in ({"forced_eos_token_id": None} | self.generation).items():
            setattr(model.generation_config, name, value)
        return model


def _draw(name: str, parameter: torch.nn.Parameter, embedding: float) -> None:
    """Draw weights by which the source counts for much."""
    is_scale = "norm" in name and name.endswith("weight")
    of_source = ("encoder_attn", "EncDecAttention", "cross_attn")
    size = 3.0 if any(each in name for each in of_source) else 1.0
    size *= parameter.shape[-1] ** -0.5
    if parameter.dim() == 1:
        size = 0.3
    elif "relative" in name:
        size = 1.0
    elif "shared" in name or "embed_tokens" in name:
        size = embedding
    mean = float(parameter.detach().mean()) if is_scale else 0.0  # Gemma's begin at 0
    torch.nn.init.normal_(parameter, mean=mean, std=size)


MARIAN = SIZES | {"eos_token_id": 0, "pad_token_id": 119, "decoder_start_token_id": 119}
MARIAN |= {"scale_embedding": True, "activation_function": "swish"}
MARIAN_TOKENS = {"</s>": 0, "<unk>": 1, "<pad>": 119}
FAIRSEQ_TOKENS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
T5_TOKENS = {"<pad>": 0, "</s>": 1, "<unk>": 2}
GEMMA_TOKENS = {"<pad>": 0, "</s>": 1, "<bos>": 2, "<unk>": 3}
GEMMA: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48}
GEMMA |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
GEMMA |= {"max_position_embeddings": 64, "sliding_window": 5, "query_pre_attn_scalar": 11}
GEMMA |= {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}  # a side of T5Gemma
MBART_TOKENS = FAIRSEQ_TOKENS | {"ar_AR": 110, "en_XX": 111, "ro_RO": 112}
NLLB_TOKENS = FAIRSEQ_TOKENS | {"ace_Arab": 110, "eng_Latn": 111, "fra_Latn": 112}
M2M_TOKENS = FAIRSEQ_TOKENS | {"__af__": 110, "__en__": 111, "__fr__": 112}

BANNED_PAD: dict[str, Any] = {  # taken out of `generate`'s probabilities, too
    "generation": {"bad_words_ids": [[119]]},
    "options": {"renormalize_logits": True},
}
_marian = (MarianMTModel, MarianConfig)
_m2m = (M2M100ForConditionalGeneration, M2M100Config)
_bart = (BartForConditionalGeneration, BartConfig)
_mbart = (MBartForConditionalGeneration, MBartConfig)
_t5 = (T5ForConditionalGeneration, T5Config)
_t5gemma = (T5GemmaForConditionalGeneration, T5GemmaConfig)

FAMILIES: dict[str, Family] = {
    "marian": Family(
        *_marian,
        MARIAN,
        MARIAN_TOKENS,
        source=(TEXT, 0),
        prompt=(119,),
        source_language="en",
        target_language="fr",
        **BANNED_PAD,
        tokenizer={"source_lang": "en", "target_lang": "fr"},
    ),
    "marian to many": Family(
        *_marian,
        MARIAN | {"activation_function": "relu"},
        MARIAN_TOKENS | {">>deu<<": 5, ">>fra<<": 6},
        source=(6, TEXT, 0),
        prompt=(119,),
        source_language="eng",
        target_language="fra",
        **BANNED_PAD,
        tokenizer={"source_lang": "eng", "target_lang": "mul"},
    ),
    "marian of two vocabularies": Family(
        *_marian,
        MARIAN
        | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 130}
        | {"tie_word_embeddings": True},
        MARIAN_TOKENS,
        seed=3,
        source=(TEXT, 0),
        prompt=(119,),
        **BANNED_PAD,
    ),
    "m2m-100": Family(
        *_m2m,
        SIZES,
        M2M_TOKENS,
        embedding=0.25,
        source=(111, TEXT, 2),
        prompt=(2, 112),
        source_language="en",
        target_language="fr",
        options={"forced_bos_token_id": 112},
    ),
    "nllb": Family(
        *_m2m,
        SIZES | {"scale_embedding": False, "activation_function": "gelu"},
        NLLB_TOKENS,
        seed=5,
        source=(111, TEXT, 2),
        prompt=(2, 112),
        source_language="eng_Latn",
        target_language="fra_Latn",
        options={"forced_bos_token_id": 112},
    ),
    "nllb of old": Family(
        *_m2m,
        SIZES,
        NLLB_TOKENS,
        seed=1,
        source=(TEXT, 2, 111),
        prompt=(2, 110),
        source_language="eng_Latn",
        target_language="ace_Arab",
        options={"forced_bos_token_id": 110},
        tokenizer={"legacy_behaviour": True},
    ),
    "bart": Family(
        *_bart,
        SIZES,
        FAIRSEQ_TOKENS,
        seed=3,
        source=(0, TEXT, 2),
        prompt=(2, 0),
        generation={"forced_bos_token_id": 0},
    ),
    "mbart": Family(
        *_mbart,
        SIZES | {"scale_embedding": True},
        MBART_TOKENS,
        seed=9,
        source=(TEXT, 2, 111),
        prompt=(112,),
        source_language="en_XX",
        target_language="ro_RO",
        options={"decoder_start_token_id": 112},
        tokenizer={"tokenizer_class": "MBartTokenizer"},
    ),
    "mbart-50": Family(
        *_mbart,
        SIZES | {"decoder_start_token_id": 2, "activation_function": "relu"},
        MBART_TOKENS,
        seed=4,
        source=(111, TEXT, 2),
        prompt=(2, 112),
        source_language="en_XX",
        target_language="ro_RO",
        options={"forced_bos_token_id": 112},
        tokenizer={"tokenizer_class": "MBart50Tokenizer"},
    ),
    "t5": Family(
        *_t5,
        T5_SIZES | {"d_kv": 8, "relative_attention_num_buckets": 8},
        T5_TOKENS,
        source=(TEXT, 1),
        prompt=(0,),
    ),
    "t5 that translates": Family(
        *_t5,
        T5_SIZES
        | {"d_kv": 8, "relative_attention_max_distance": 20}
        | {"task_specific_params": {"translation_en_to_de": {"prefix": "w9 w10 w11 "}}},
        T5_TOKENS,
        source=(9, 10, 11, TEXT, 1),
        prompt=(0,),
        source_language="en",
        target_language="de",
    ),
    "t5 1.1": Family(
        *_t5,
        T5_SIZES | {"d_kv": 8, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        T5_TOKENS,
        has_own_output=True,
        embedding=0.15,
        seed=5,
        source=(TEXT, 1),
        prompt=(0,),
    ),
    "mt5": Family(
        MT5ForConditionalGeneration,
        MT5Config,
        T5_SIZES | {"d_kv": 24, "num_heads": 3, "num_decoder_layers": 1},
        T5_TOKENS,
        embedding=0.2,
        source=(TEXT, 1),
        prompt=(0,),
    ),
    "longt5": Family(
        LongT5ForConditionalGeneration,
        LongT5Config,
        T5_SIZES | {"d_kv": 8, "local_radius": 3, "feed_forward_proj": "gated-gelu"},
        T5_TOKENS,
        source=(TEXT, 1),
        prompt=(0,),
    ),
    "madlad-400": Family(
        *_t5,
        T5_SIZES | {"d_kv": 8, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        T5_TOKENS | {"<2en>": 5, "<2fr>": 6, "<2zh_Latn>": 7},
        has_own_output=True,
        embedding=0.15,
        seed=2,
        source=(6, TEXT, 1),
        prompt=(0,),
        source_language="en",
        target_language="fr",
    ),
    "pegasus": Family(
        PegasusForConditionalGeneration,
        PegasusConfig,
        SIZES | {"scale_embedding": True, "activation_function": "relu"},
        T5_TOKENS,
        seed=1,
        source=(TEXT, 1),
        prompt=(0,),
    ),
    "t5gemma": Family(
        *_t5gemma,
        {"vocab_size": VOCABULARY, "encoder": GEMMA, "decoder": GEMMA},
        GEMMA_TOKENS,
        embedding=0.1,
        source=(2, TEXT),
        prompt=(2,),
    ),
    "t5gemma of two sizes": Family(
        *_t5gemma,
        {
            "vocab_size": VOCABULARY,
            "tie_word_embeddings": False,
            "encoder": GEMMA | {"hidden_size": 40, "num_attention_heads": 2},
            "decoder": GEMMA
            | {"num_hidden_layers": 3, "final_logit_softcapping": None, "query_pre_attn_scalar": 7},
        },
        GEMMA_TOKENS,
        has_own_output=True,
        embedding=0.2,
        source=(2, TEXT),
        prompt=(2,),
    ),
    "umt5": Family(
        UMT5ForConditionalGeneration,
        UMT5Config,
        T5_SIZES | {"d_kv": 8, "relative_attention_num_buckets": 8},
        T5_TOKENS,
        source=(TEXT, 1),
        prompt=(0,),
    ),
    # heads of sizes that ONNX Runtime's attention takes only when they are padded
    "marian with heads of 12": Family(
        *_marian,
        MARIAN | {"d_model": 48},
        MARIAN_TOKENS,
        seed=5,
        source=(TEXT, 0),
        prompt=(119,),
        **BANNED_PAD,
    ),
    "marian of unequal sides": Family(
        *_marian,
        MARIAN | {"decoder_attention_heads": 2, "decoder_ffn_dim": 64},
        MARIAN_TOKENS,
        seed=2,
        source=(TEXT, 0),
        prompt=(119,),
        **BANNED_PAD,
    ),
    "nllb of unequal sides": Family(
        *_m2m,
        SIZES | {"encoder_attention_heads": 2, "decoder_attention_heads": 8, "encoder_ffn_dim": 40},
        NLLB_TOKENS,
        seed=5,
        source=(111, TEXT, 2),
        prompt=(2, 112),
        source_language="eng_Latn",
        target_language="fra_Latn",
        options={"forced_bos_token_id": 112},
    ),
    "bart of unequal sides": Family(
        *_bart,
        SIZES | {"d_model": 48, "decoder_attention_heads": 6, "encoder_attention_heads": 3},
        FAIRSEQ_TOKENS,
        seed=2,
        source=(0, TEXT, 2),
        prompt=(2, 0),
        generation={"forced_bos_token_id": 0},
    ),
    "bart with heads of 20": Family(
        *_bart,
        SIZES | {"d_model": 80},
        FAIRSEQ_TOKENS,
        seed=0,
        source=(0, TEXT, 2),
        prompt=(2, 0),
        generation={"forced_bos_token_id": 0},
    ),
    "t5 with heads of 12": Family(
        *_t5,
        T5_SIZES | {"d_kv": 12, "num_heads": 3},
        T5_TOKENS,
        source=(TEXT, 1),
        prompt=(0,),
    ),
}


def save(family: Family, folder: Path) -> PreTrainedModel:
    """Write the model and a tokenizer of words `w4`, `w5` ... whose number is their id."""
    model = family.model()
    model.save_pretrained(folder)
    _tokenizer(family.special).save(str(folder / "tokenizer.json"))
    settings = {"model_max_length": 64, **family.tokenizer}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


def _tokenizer(special: dict[str, int]) -> Tokenizer:
    names = {token_id: name for name, token_id in special.items()}
    vocab = {names.get(i, f"w{i}"): i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocab, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(special))
    if "<bos>" in special:
        marks = [("<bos>", special["<bos>"])]
        tokenizer.post_processor = processors.TemplateProcessing("<bos> $A", special_tokens=marks)
    return tokenizer
