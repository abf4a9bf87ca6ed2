"""The reference beam search against Hugging Face's, and against looking at everything."""

from itertools import product
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

from models.contract import LanguageModel
from models.decoding import BeamRules, FinishedText, beam_search, encode_rows
from models.loading import load_module
from tests.grid import full
from tests.hugging_face import HuggingFaceModel, generate
from tests.reference_models import EOS_ID, ending_checkpoint, examples
from tests.tiny import DECODERS, tiny_checkpoint

FAMILIES = ["transformer", "bahdanau", "llama", "recurrent-lm"]
LENGTH_PENALTIES = [0.0, 1.0, 2.0, -0.5]
STOPS: list[bool | Literal["never"]] = [False, True, "never"]
NEW_TOKENS = 12


@pytest.fixture(params=FAMILIES, scope="module")
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def module(family: str, tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    return load_module(ending_checkpoint(family, tmp_path_factory.mktemp("checkpoint")))


def ids_of(hypotheses: list[FinishedText]) -> list[list[int]]:
    return [hypothesis.token_ids for hypothesis in hypotheses]


@pytest.mark.parametrize("num_beams", [4, *full([2, 8])])
def test_finds_what_hugging_face_finds(num_beams: int, family: str, module: nn.Module) -> None:
    lengths, num_ended, num_found = set(), 0, 0
    for (source, prompt), penalty, stop in product(examples(family), LENGTH_PENALTIES, STOPS):
        rules = BeamRules(num_beams, NEW_TOKENS, penalty, stop)
        ours = beam_search(module, source, prompt, rules)
        theirs = generate(
            module,
            source,
            prompt,
            num_beams=num_beams,
            num_return_sequences=num_beams,
            length_penalty=penalty,
            early_stopping=stop,
            max_new_tokens=NEW_TOKENS,
        )
        assert ids_of(ours) == [each.token_ids for each in theirs], rules
        assert [h.score for h in ours] == pytest.approx([t.score for t in theirs], rel=1e-5)
        lengths |= {len(h.token_ids) for h in ours}
        num_ended += sum(h.token_ids[-1] == EOS_ID for h in ours)
        num_found += len(ours)
    assert 0.1 < num_ended / num_found < 0.95
    assert len(lengths) >= 3


def test_one_beam_is_greedy(family: str, module: nn.Module) -> None:
    for source, prompt in examples(family):
        [ours] = beam_search(module, source, prompt, BeamRules(1, NEW_TOKENS))
        [theirs] = generate(module, source, prompt, max_new_tokens=NEW_TOKENS)
        assert ours.token_ids == theirs.token_ids


def test_a_beam_as_wide_as_the_vocabulary_finds_the_best_of_all(
    family: str, module: nn.Module
) -> None:
    """Search two tokens at most: every first token lives on, so nothing is missed."""
    source, prompt = examples(family)[0]
    size = module.config.vocab_size
    rules = BeamRules(size, max_new_tokens=2, length_penalty=0.0)
    best = beam_search(module, source, prompt, rules)[:5]
    assert ids_of(best) == ids_of(all_of_two_tokens(module, source, prompt)[:5])


@torch.inference_mode()
def all_of_two_tokens(
    module: nn.Module, source: list[int] | None, prompt: list[int]
) -> list[FinishedText]:
    model, start = HuggingFaceModel(module, source), [module.config.bos_id, *prompt]
    first = next_log_probabilities(model, [start])[0]
    second = next_log_probabilities(model, [[*start, token] for token in range(len(first))])
    actual = [FinishedText([EOS_ID], first[EOS_ID])]
    for token, other in product(range(len(first)), repeat=2):
        if token != EOS_ID:
            actual.append(FinishedText([token, other], first[token] + second[token][other]))
    return sorted(actual, key=lambda hypothesis: -hypothesis.score)


def next_log_probabilities(model: HuggingFaceModel, rows: list[list[int]]) -> list[list[float]]:
    return model(torch.tensor(rows)).logits[:, -1].log_softmax(-1).tolist()


@pytest.mark.parametrize(("patience", "num_enough"), [(0.5, 2), (1.0, 4), (2.0, 8)])
def test_patience_waits_for_so_many(
    patience: float, num_enough: int, family: str, module: nn.Module
) -> None:
    for source, prompt in examples(family):
        rules = BeamRules(4, NEW_TOKENS, early_stopping=True, patience=patience)
        actual = beam_search(module, source, prompt, rules)
        assert min(num_enough, rules.num_beams) <= len(actual) <= num_enough
        patient = BeamRules(4, NEW_TOKENS, early_stopping=True, patience=patience + 0.5)
        assert beam_search(module, source, prompt, patient)[0].score >= actual[0].score


@pytest.mark.parametrize("family", DECODERS)
@torch.inference_mode()
def test_rows_of_every_state_can_be_taken_in_any_order(family: str, tmp_path: Path) -> None:
    """Some of the rows, one of them twice: each goes on as if nothing had happened."""
    module = load_module(tiny_checkpoint(family, tmp_path))
    ids, rows = torch.randint(3, 250, (3, 6)), torch.tensor([2, 0, 2])
    sources = [torch.randint(3, 250, (length,)).tolist() for length in (4, 9, 6)]
    begins_empty = isinstance(module, LanguageModel)
    state = module.empty_state() if begins_empty else encode_rows(module, sources)
    expected = module.read(ids, state)[0][rows]
    state = module.read(ids[:, :2], state)[1].select(rows)
    for position in range(2, 6):
        hidden, state = module.step(ids[rows, position], state)
        torch.testing.assert_close(hidden, expected[:, position], rtol=1e-4, atol=1e-5)
