"""Tiny random encoders of every Hugging Face family, as `transformers` writes them."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import RobertaProcessing, TemplateProcessing
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 50,
    "max_position_embeddings": 40,
}
FROM_FAIRSEQ = SIZES | {"pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISENTANGLED = SIZES | {
    "relative_attention": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "albert": SIZES | {"embedding_size": 20, "bos_token_id": 2, "eos_token_id": 3},
    "bert": SIZES,
    "camembert": FROM_FAIRSEQ,
    "deberta": DISENTANGLED | {"type_vocab_size": 2},
    "deberta-v2": DISENTANGLED
    | {"position_buckets": 6, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 50}
    | {"max_position_embeddings": 40, "sinusoidal_pos_embds": True},
    "electra": SIZES | {"embedding_size": 20, "hidden_act": "relu"},
    "mpnet": SIZES | {"pad_token_id": 1},
    "roberta": FROM_FAIRSEQ | {"type_vocab_size": 2, "hidden_act": "gelu_new"},
    "xlm-roberta": FROM_FAIRSEQ,
}
WITHOUT_MASKED_WORDS = ("albert", "electra")  # whose words have smaller vectors
KINDS: dict[str, Any] = {  # by the end of their names
    "Model": AutoModel,
    "ForMaskedLM": AutoModelForMaskedLM,
    "ForSequenceClassification": AutoModelForSequenceClassification,
    "ForTokenClassification": AutoModelForTokenClassification,
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = {
    "bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "roberta": ("<s>", "<pad>", "</s>", "[UNK]", "<mask>"),
}


LIKE_ROBERTA = ("camembert", "mpnet", "roberta", "xlm-roberta")


def kind_of(family: str) -> str:
    """Tell whose special tokens it has."""
    return "roberta" if family in LIKE_ROBERTA else "bert"


def tokenizer_of(family: str) -> Tokenizer:
    """Make one of letters, as word pieces."""
    special = SPECIAL[kind_of(family)]
    pieces = [*special, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([*special])
    if kind_of(family) == "bert":
        tokenizer.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(name, ids[name]) for name in ("[CLS]", "[SEP]")],
        )
    else:
        tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.enable_truncation(7)  # as many folders have it; the model reads more
    tokenizer.enable_padding()
    return tokenizer


def random_model(
    family: str, num_labels: int = 0, seed: int = 0, kind: str = "", **changes: Any
) -> PreTrainedModel:
    """Make a model of that kind, of weights of a trained size; by default a classifier, or without
    labels an encoder alone.
    """
    kind = kind or ("ForSequenceClassification" if num_labels else "Model")
    labels = {"num_labels": num_labels} if num_labels else {}
    vocab_size = tokenizer_of(family).get_vocab_size() + 3  # models often have some more
    options = {"vocab_size": vocab_size} | FAMILIES[family] | labels | changes
    config = AutoConfig.for_model(family, **options)
    torch.manual_seed(seed)
    model: PreTrainedModel = KINDS[kind].from_config(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.15)
        else:
            nn.init.normal_(parameter, mean=float("norm.weight" in name.lower()), std=0.1)
    return model


def save(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer_of(model.config.model_type).save(str(folder / "tokenizer.json"))
    return folder
