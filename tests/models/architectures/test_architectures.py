"""Definitions: cached steps equal the whole, parts equal plain float64 loops."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from models.architectures.bahdanau.config import BahdanauConfig
from models.architectures.cho.config import ChoConfig
from models.architectures.llama.config import LlamaConfig
from models.architectures.sutskever.config import SutskeverConfig
from models.architectures.transformer.config import TransformerConfig
from models.architectures.transformer_ssru.config import TransformerSSRUConfig
from models.batch import LanguageBatch, TranslationBatch
from models.configs.transformer import Learned, Norm, Relative
from models.decoding import continue_batch, greedy, translate_batch
from models.layers.attention import Attention, causal_mask
from models.layers.position_tables import sinusoids
from models.layers.positions import Rotary
from models.loading import build

SMALL: dict[str, Any] = {"vocab_size": 60, "max_source_tokens": 32, "max_target_tokens": 32}
TRANSFORMER: dict[str, Any] = {"d_model": 16, "num_heads": 2, "ffn_dim": 24, "encoder_layers": 2}
TRANSLATION_CONFIGS = [
    BahdanauConfig(**SMALL, embedding_dim=8, hidden_dim=10, attention_dim=6, readout_dim=8),
    BahdanauConfig(**SMALL, embedding_dim=8, readout_dim=5, tied_embeddings=False),
    ChoConfig(**SMALL, embedding_dim=8, hidden_dim=10, readout_dim=8),
    SutskeverConfig(**SMALL, embedding_dim=8, hidden_dim=10, readout_dim=8, num_layers=3),
    TransformerConfig(**SMALL, **TRANSFORMER),
    TransformerConfig(**SMALL, **TRANSFORMER, norm=Norm(place="post"), positions=Learned()),
    TransformerConfig(**SMALL, **TRANSFORMER, activation="gelu", tied_embeddings=False),
    TransformerConfig(**SMALL, **TRANSFORMER, positions=Relative(), num_kv_heads=1),
    TransformerSSRUConfig(**SMALL, **TRANSFORMER),
    TransformerSSRUConfig(**SMALL, **TRANSFORMER, norm=Norm(place="post"), positions=Learned()),
]
LLAMA = LlamaConfig(
    vocab_size=60, d_model=64, num_heads=4, num_kv_heads=2, ffn_dim=24, context_length=32
)


def fresh(config, seed: int = 0):
    torch.manual_seed(seed)
    return build(config).eval()


@pytest.mark.parametrize("config", TRANSLATION_CONFIGS, ids=lambda c: c.architecture)
@torch.inference_mode()
def test_steps_equal_the_whole_sequence(config) -> None:
    module = fresh(config)
    source, lengths = torch.randint(3, 60, (3, 9)), torch.tensor([9, 4, 6])
    target = torch.randint(3, 60, (3, 7))
    whole = module(TranslationBatch(target, target, source, lengths))
    state = module.encode(source, lengths)
    for position in range(7):
        hidden, state = module.step(target[:, position], state)
        torch.testing.assert_close(hidden, whole[:, position], rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_steps_of_the_language_model_equal_the_whole_sequence() -> None:
    module, ids = fresh(LLAMA), torch.randint(3, 60, (2, 9))
    whole = module(LanguageBatch(ids, ids))
    hidden, state = module.read(ids[:, :4], module.empty_state())
    torch.testing.assert_close(hidden, whole[:, :4], rtol=1e-4, atol=1e-5)
    for position in range(4, 9):
        hidden, state = module.step(ids[:, position], state)
        torch.testing.assert_close(hidden, whole[:, position], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", TRANSLATION_CONFIGS, ids=lambda c: c.architecture)
def test_the_batched_loop_equals_one_sentence_at_a_time(config) -> None:
    module = fresh(config, seed=3)
    sources = [torch.randint(3, 60, (n,)).tolist() for n in (1, 5, 9, 9)]
    batched = translate_batch(module, sources, 12)
    assert batched == [greedy(module, s, [], 12) for s in sources]


def test_the_batched_loop_of_the_language_model_equals_one_prompt_at_a_time() -> None:
    module = fresh(LLAMA, seed=3)
    prompts = [torch.randint(3, 60, (4,)).tolist() for _ in range(3)]
    assert continue_batch(module, prompts, 10) == [greedy(module, None, p, 10) for p in prompts]


@torch.inference_mode()
def test_grouped_attention_equals_plain_loops() -> None:
    torch.manual_seed(0)
    attention = Attention(8, num_heads=4, num_kv_heads=2, bias=True).double()
    x = torch.randn(1, 5, 8).double()
    mask = causal_mask(0, 5, None, x.device)
    got = attention.attend(attention.queries(x), attention.keys_values(x), mask)
    q, k, v = (f(x)[0].numpy() for f in (attention.query, attention.key, attention.value))
    mixed = np.zeros((5, 8))
    for head in range(4):
        mine, shared = slice(2 * head, 2 * head + 2), slice(head // 2 * 2, head // 2 * 2 + 2)
        for t in range(5):
            scores = [q[t, mine] @ k[s, shared] / math.sqrt(2) for s in range(t + 1)]
            p = np.exp(scores) / np.exp(scores).sum()
            mixed[t, mine] = sum(p[s] * v[s, shared] for s in range(t + 1))
    expected = attention.output(torch.from_numpy(mixed))
    torch.testing.assert_close(got[0], expected)


def test_positions_equal_their_formulas() -> None:
    table = sinusoids(7, 6)
    assert table[5, 2] == pytest.approx(math.sin(5 / 10000 ** (2 / 6)), abs=1e-6)
    assert table[5, 3] == pytest.approx(math.cos(5 / 10000 ** (2 / 6)), abs=1e-6)
    x, angle = torch.tensor([[[[1.0, 2.0, 3.0, 4.0, 5.0]]]]), 6 * 100.0 ** (-2 / 4)
    turned = Rotary(7, [1.0, 100.0 ** (-2 / 4)])(x, 6)[0, 0, 0]
    assert turned[1] == pytest.approx(2 * math.cos(angle) - 4 * math.sin(angle), abs=1e-5)
    assert turned[3] == pytest.approx(4 * math.cos(angle) + 2 * math.sin(angle), abs=1e-5)
    assert turned[4] == 5, "is of no pair"
