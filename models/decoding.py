"""Plain decoding in torch with a key-value cache: greedy, beam search, forced targets. It validates
training, is the reference of the engine's tests, and the peer of `attendant bench`.

The rows of a batch start together, and the batch ends when its longest row has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from models.batch import LanguageBatch, TranslationBatch, device_of
from models.configs.base import MaskedWordHead
from models.contract import (
    AnyModel,
    DecoderState,
    EncoderModel,
    GenerativeModel,
    LanguageModel,
    S,
    TranslationModel,
)
from models.conventions import AddedTokens, own_conventions
from models.data.batching import pad_rows
from models.data.corpus import ProseWindow
from models.data.tokenizer import encode_all
from models.safetensors import Array


def first_state(model: TranslationModel[S] | LanguageModel[S], source: Sequence[int] | Array) -> S:
    """Return the state before the first target token; a translator reads all of the source's ids
    first.
    """
    if isinstance(model, LanguageModel):
        return model.empty_state()
    return encode_rows(model, [source])


def encode_rows(model: TranslationModel[S], sources: Sequence[Sequence[int] | Array]) -> S:
    """Encode sources of any lengths in one batch, or the levels of pictures [height, width, 3], or
    features of sound [mels, frames].
    """
    device = device_of(model)
    arrays = [source for source in sources if isinstance(source, np.ndarray)]
    if arrays:
        batch = torch.from_numpy(np.stack(arrays)).to(device)
        return model.encode(batch, torch.ones(len(arrays), device=device))
    texts = [source for source in sources if not isinstance(source, np.ndarray)]
    lengths = torch.tensor([len(source) for source in sources], device=device)
    return model.encode(pad_rows(texts, model.config.pad_id).to(device), lengths)


def translate_batch(
    model: TranslationModel,
    sources: Sequence[list[int]],
    max_new_tokens: int,
    added: AddedTokens | None = None,
) -> list[list[int]]:
    """Translate the ids of texts, given and returned without the `added` tokens."""
    added = added or own_conventions(model.config)
    rows = [[*added.source_prefix, *ids, *added.source_suffix] for ids in sources]
    prefixes = torch.tensor([added.prompt_prefix] * len(rows), device=device_of(model))
    with torch.inference_mode():
        return _continue(model, prefixes, encode_rows(model, rows), max_new_tokens, added.stop)


def continue_batch(
    model: LanguageModel,
    prompts: Sequence[list[int]],
    max_new_tokens: int,
    added: AddedTokens | None = None,
) -> list[list[int]]:
    """Continue prompts of one length, given without the tokens that precede every prompt."""
    added = added or own_conventions(model.config)
    rows = [[*added.prompt_prefix, *prompt] for prompt in prompts]
    ids = torch.tensor(rows, device=device_of(model))
    with torch.inference_mode():
        return _continue(model, ids, model.empty_state(), max_new_tokens, added.stop)


def translate_all(
    model: TranslationModel,
    sources: list[list[int]],
    max_new_tokens: int,
    batch_size: int,
    added: AddedTokens | None = None,
) -> list[list[int]]:
    """Translate any number of sources, batched by length; the results are in the order of the
    sources.
    """
    added = added or own_conventions(model.config)
    limit = model.config.max_source_tokens - len(added.source_prefix + added.source_suffix)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    out: list[list[int]] = [[] for _ in sources]
    for start in range(0, len(order), batch_size):
        chunk = order[start : start + batch_size]
        rows = [sources[i][:limit] for i in chunk]
        targets = translate_batch(model, rows, max_new_tokens, added)
        for i, target in zip(chunk, targets, strict=True):
            out[i] = target
    return out


def _continue(
    model: GenerativeModel[S],
    prompt_ids: Tensor,
    state: S,
    max_new_tokens: int,
    stop: tuple[int, ...],
) -> list[list[int]]:
    """Continue rows of ids [batch, prompt]. Rows that have ended stay in the batch."""
    stops, columns = torch.tensor(stop, device=prompt_ids.device), []
    has_ended = torch.zeros(len(prompt_ids), dtype=torch.bool, device=prompt_ids.device)
    ids = prompt_ids
    for _ in range(max_new_tokens):
        hidden, state = model.read(ids, state)
        ids = model.project(hidden[:, -1]).argmax(-1, keepdim=True)
        columns.append(ids)
        has_ended |= torch.isin(ids[:, 0], stops)
        if has_ended.all():
            break
    rows = torch.cat(columns, 1).tolist() if columns else [[] for _ in prompt_ids]
    return [list(takewhile(lambda token: token not in stop, row)) for row in rows]


@torch.inference_mode()
def greedy(
    model: AnyModel, source: list[int] | None, prompt: list[int], max_new_tokens: int
) -> list[int]:
    """Continue `prompt` (ids after <s>) for `source` ids (without </s>; None for a language model).

    Ends before </s> or after `max_new_tokens`.
    """
    eos_id, device = model.config.eos_id, device_of(model)
    target = [model.config.bos_id, *prompt]
    for _ in range(max_new_tokens):
        ids = torch.tensor([target], device=device)
        if source is None:
            hidden = model(LanguageBatch(ids, ids))
        else:
            source_ids = torch.tensor([[*source, eos_id]], device=device)
            lengths = torch.tensor([len(source) + 1], device=device)
            hidden = model(TranslationBatch(ids, ids, source_ids, lengths))
        token = int(model.project(hidden[0, -1]).argmax())
        if token == eos_id:
            break
        target.append(token)
    return target[1 + len(prompt) :]


def translate(model: TranslationModel, tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    """Translate each text greedily."""
    sources = encode_all(tokenizer, texts)
    rows = translate_all(model, sources, model.config.max_target_tokens - 1, batch_size=64)
    return tokenizer.decode_batch(rows)


def translate_by_beams(
    model: TranslationModel, tokenizer: Tokenizer, texts: list[str], num_beams: int
) -> list[str]:
    """Return the best hypothesis for each text."""
    config = model.config
    rules = BeamRules(num_beams, config.max_target_tokens - 1)
    sources = [ids[: config.max_source_tokens - 1] for ids in encode_all(tokenizer, texts)]
    bar = tqdm(sources, desc="beam search", unit="text", leave=False, disable=None)
    return tokenizer.decode_batch([beam_search(model, ids, [], rules)[0].token_ids for ids in bar])


WINDOWS_AT_ONCE = 8


@torch.inference_mode()
def teacher_forced_log_probabilities(
    model: AnyModel, source: Sequence[int] | Array, target: Sequence[int]
) -> Tensor:
    """Return the log-probabilities of all tokens after each id of a target: [target, vocabulary].
    Source and target include <s> and </s>.
    """
    ids = torch.tensor([target], device=device_of(model))
    hidden, _ = model.read(ids, first_state(model, source))
    return model.project(hidden)[0].float().log_softmax(-1)


@torch.inference_mode()
def nats(
    model: LanguageModel, windows: Sequence[ProseWindow], prefix: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the negative log-likelihoods [windows, tokens] of the tokens that the windows predict.
    All windows have the same shape.
    """
    parts, first = [], max(len(prefix) - 1, 0)
    for start in range(0, len(windows), WINDOWS_AT_ONCE):
        some = windows[start : start + WINDOWS_AT_ONCE]
        rows = [[*prefix, *window.token_ids] for window in some]
        ids = torch.tensor(rows, device=device_of(model))
        labels, num_known = ids[:, first + 1 :], some[0].num_known - (not prefix)
        hidden, _ = model.read(ids[:, :-1], model.empty_state())
        logits = model.project(hidden[:, first + num_known :].flatten(0, 1)).float()
        predicted = labels[:, num_known:]
        lost = cross_entropy(logits, predicted.flatten(), reduction="none")
        parts.append(lost.view_as(predicted).double().cpu().numpy())
    return np.concatenate(parts)


@dataclass(frozen=True)
class BeamRules:
    """length_penalty: a hypothesis of n tokens, </s> included, with log-probability s has the score
    s / n**length_penalty (Wu et al. 2016, equation 14, with a plain power of the length and without
    coverage).
    early_stopping: True stops when `num_enough` hypotheses have ended; False when no live beam has
        a better score now than the worst of them; "never" when no live beam can get a better score.
    patience: num_beams times this many hypotheses are enough (Kasai et al. 2024).
    """

    num_beams: int
    max_new_tokens: int
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    patience: float = 1.0

    @property
    def num_enough(self) -> int:
        return max(round(self.num_beams * self.patience), 1)


@dataclass(frozen=True)
class FinishedText:
    """A finished text.

    token_ids: generated tokens, including </s> if it ended the text.
    """

    token_ids: list[int]
    score: float


@dataclass(frozen=True)
class LiveBeam:
    """An unfinished text; it has one row of logits and of the state.

    logprob: of all `token_ids` together.
    """

    row: int
    token_ids: list[int]
    logprob: float


class FinishedTexts:
    """The best finished hypotheses, best first."""

    def __init__(self, rules: BeamRules) -> None:
        self._rules = rules
        self.hypotheses: list[FinishedText] = []

    def add(self, ended: list[LiveBeam]) -> None:
        for beam in ended:
            score = self._score(beam.logprob, len(beam.token_ids))
            self.hypotheses.append(FinishedText(beam.token_ids, score))
        self.hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        del self.hypotheses[self._rules.num_enough :]

    def is_final(self, best_live: LiveBeam) -> bool:
        """Return whether the search may stop, given the likeliest live beam."""
        rules = self._rules
        if len(self.hypotheses) < rules.num_enough:
            return False
        length = len(best_live.token_ids)
        if rules.early_stopping == "never" and rules.length_penalty > 0:
            length = rules.max_new_tokens
        bound = self._score(best_live.logprob, length)
        return rules.early_stopping is True or bound <= self.hypotheses[-1].score

    def _score(self, logprob: float, length: int) -> float:
        return logprob / length**self._rules.length_penalty


@torch.inference_mode()
def beam_search(
    model: AnyModel, source: list[int] | None, prompt: list[int], rules: BeamRules
) -> list[FinishedText]:
    """Continue `prompt` (ids after <s>) for `source` ids (without </s>; None for a language model).
    Return the best `rules.num_enough` hypotheses, best first. The prompt does not count in scores.
    """
    eos_id, device = model.config.eos_id, device_of(model)
    state: DecoderState = first_state(model, [*(source or ()), eos_id])
    ids = torch.tensor([[model.config.bos_id, *prompt]], device=device)
    hidden, state = model.read(ids, state)
    return _search(model, hidden[:, -1], state, rules)


def _search(
    model: GenerativeModel[S], hidden: Tensor, state: S, rules: BeamRules
) -> list[FinishedText]:
    """Search, given the vector [1, dim] that predicts the first token."""

    def has_ended(beam: LiveBeam) -> bool:
        at_end = beam.token_ids[-1] == model.config.eos_id
        return at_end or len(beam.token_ids) == rules.max_new_tokens

    live, pool = [LiveBeam(0, [], 0.0)], FinishedTexts(rules)
    while True:
        logp = model.project(hidden).float().log_softmax(-1)
        candidates = _expand(live, logp, rules.num_beams)
        pool.add([beam for beam in candidates[: rules.num_beams] if has_ended(beam)])
        live = [beam for beam in candidates if not has_ended(beam)][: rules.num_beams]
        if not live or pool.is_final(live[0]):
            return pool.hypotheses
        rows, ids = ([beam.row for beam in live], [beam.token_ids[-1] for beam in live])
        state = state.select(torch.tensor(rows, device=logp.device))
        hidden, state = model.step(torch.tensor(ids, device=logp.device), state)


def _expand(live: list[LiveBeam], logp: Tensor, num_beams: int) -> list[LiveBeam]:
    """Extend every beam by one token, likeliest first; logp [beams, vocabulary]. At most num_beams
    + 1 tokens of a beam can matter: those that are kept, and </s>.
    """
    values, ids = logp.topk(min(num_beams + 1, logp.shape[1]))
    candidates = [
        LiveBeam(row, [*beam.token_ids, token_id], beam.logprob + logprob)
        for row, (beam, *columns) in enumerate(
            zip(live, values.tolist(), ids.tolist(), strict=True)
        )
        for logprob, token_id in zip(*columns, strict=True)
    ]
    return sorted(candidates, key=lambda beam: -beam.logprob)


@torch.inference_mode()
def vectors_of(
    model: EncoderModel, rows: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
) -> list[Array]:
    """Return the embeddings or logits of texts that include their special tokens; of heads that
    read each token [tokens, labels], of masked words [masks, vocabulary].

    types: the segment of each token.
    """
    head = model.config.head
    device = device_of(model)
    vectors = []
    for ids, segments in zip(rows, types, strict=True):
        lengths = torch.tensor([len(ids)], device=device)
        tensors = (torch.tensor([values], device=device) for values in (ids, segments))
        source, source_types = tensors
        hidden = model.encode(source, lengths, source_types)
        if isinstance(head, MaskedWordHead):
            hidden = hidden[source == head.mask_id][None]
        vectors.append(model.project(hidden)[0].float().cpu().numpy())
    return vectors
