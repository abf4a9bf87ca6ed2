"""A scripted model: graphs as plain numpy functions over the arrays bound to them, no ONNX.

Its next token depends on every state of its row, and on every position of them, so a row that
reads, keeps or moves anything wrong says something else. It has one state of each kind.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from serving.bundle.manifest import (
    CANDIDATES,
    FORMAT_VERSION,
    GraphSpec,
    Limits,
    Manifest,
    Precision,
    StateKind,
    StateSpec,
    Task,
    TensorSpec,
    Tokens,
)
from serving.bundle.opening import Bundle
from serving.bundle.validation import SHORTLIST_INPUTS
from serving.engine.arrays import Array
from serving.engine.runtime.graph import Graphs
from serving.engine.states.memory import HostMemory

VOCAB_SIZE, WINDOW, CAPACITY, MAX_SOURCE = 50, 8, 24, 100
BOS, STOP = 1, 2
HISTORY = StateSpec("history", StateKind.APPEND, (2, "length", 3), "float32")
TALLY = StateSpec("tally", StateKind.UPDATE, (1,), "float32")
HIDDEN = StateSpec("hidden", StateKind.REPLACE, (4,), "float32")
MEMORY = StateSpec("memory", StateKind.CONSTANT, (2, "source", 3), "float32")
SUMMARY = StateSpec("summary", StateKind.CONSTANT, (1,), "float32")


def toy_bundle(
    has_encoder: bool = True,
    prompt_prefix: tuple[int, ...] = (BOS,),
    has_shortlist: bool = False,
) -> Bundle:
    states: tuple[StateSpec, ...] = (HISTORY, TALLY, HIDDEN)
    if has_encoder:
        states += MEMORY, SUMMARY
    graphs = {"step": _step_spec(states, "tokens" if not has_encoder else 1, has_shortlist)}
    if has_encoder:
        inputs = (_tensor("source_ids", "int64", "source"), _tensor("source_lengths", "int32"))
        outputs = tuple(_tensor(spec.name, spec.dtype, *spec.shape) for spec in states[2:])
        graphs["encode"] = GraphSpec("encode.onnx", inputs, outputs)
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        name="toy",
        task=Task.TRANSLATE if has_encoder else Task.GENERATE,
        architecture="toy",
        precision=Precision.FP32,
        source_languages=("en",),
        target_languages=("fr",),
        tokens=Tokens(0, BOS, STOP, (), (), prompt_prefix, (STOP,)),
        limits=Limits(MAX_SOURCE if has_encoder else None, CAPACITY),
        graphs=graphs,
        states=states,
        vocab_size=VOCAB_SIZE,
        window=WINDOW,
        files={},
    )
    return Bundle(Path("toy"), manifest)


def toy_graphs(script: "Script | None" = None, has_encoder: bool = True) -> Graphs:
    script = script or Script()
    encode = ToyGraph(lambda inputs, outputs: _encode(script, inputs, outputs))
    step = ToyGraph(lambda inputs, outputs: _step(script, inputs, outputs))
    return Graphs(step, encode if has_encoder else None, HostMemory())


@dataclass
class Script:
    """Which runs fail: those that read one of these tokens. Counts what was run.

    tokens_without_scores: a row that has read one has scores that are NaN.

    possible: the tokens that are scored, where the graph is not told; by default all.
    """

    possible: tuple[int, ...] = tuple(range(VOCAB_SIZE))
    poisoned_sources: set[int] = field(default_factory=set)
    poisoned_tokens: set[int] = field(default_factory=set)
    tokens_without_scores: set[int] = field(default_factory=set)
    encode_shapes: list[tuple[int, ...]] = field(default_factory=list)
    step_shapes: list[tuple[int, ...]] = field(default_factory=list)
    step_totals: list[list[int]] = field(default_factory=list)


def next_logp(source: tuple[int, ...], target: tuple[int, ...]) -> Array:
    """The toy's answer in one piece: log-probabilities of the token after `target`."""
    key = 0.0
    if source:
        key += sum((i + 1) * (7 * token % 13) for i, token in enumerate(source)) + len(source)
    hidden = float(sum(source) % 17) if source else 0.0
    tally = 0
    for token in target:
        hidden = (3 * hidden + token) % 19
        tally = (5 * tally + token) % 23
    key += hidden + tally + sum((i + 2) * (token % 11) for i, token in enumerate(target))
    return log_softmax(key)


def log_softmax(key: float, vocabulary: Array | None = None) -> Array:
    if vocabulary is None:
        vocabulary = np.arange(VOCAB_SIZE)
    logits = (2.5 * np.sin(key * 0.37 * (vocabulary + 1) + vocabulary)).astype(np.float32)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum(dtype=np.float32))


@dataclass
class ToyGraph:
    function: Callable[[dict[str, Array], dict[str, Array]], None]

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Callable[[], None]:
        for array in (*inputs.values(), *outputs.values()):
            assert array.flags.c_contiguous
        return lambda: self.function(inputs, outputs)


def _encode(script: Script, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
    ids, lengths = inputs["source_ids"], inputs["source_lengths"]
    script.encode_shapes.append(ids.shape)
    if script.poisoned_sources & set(ids.flatten().tolist()):
        raise RuntimeError("poisoned source")
    for row, length in enumerate(lengths):
        outputs["memory"][row] = np.nan_to_num(outputs["memory"][row]) + 1000  # garbage beyond
        outputs["memory"][row, :, :length] = (7 * ids[row, :length] % 13)[None, :, None]
        outputs["hidden"][row] = ids[row, :length].sum() % 17
        outputs["summary"][row] = length


def _step(script: Script, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
    script.step_shapes.append(inputs["ids"].shape)
    script.step_totals.append(inputs["total_lengths"].tolist())
    if script.poisoned_tokens & set(inputs["ids"].flatten().tolist()):
        raise RuntimeError("poisoned token")
    for row in range(len(inputs["ids"])):
        past, total = int(inputs["past_lengths"][row]), int(inputs["total_lengths"][row])
        hidden = inputs["hidden"][row].copy()
        if script.tokens_without_scores & set(inputs["ids"][row].tolist()):
            hidden[:] = np.nan
        for position, token in zip(range(past, total), inputs["ids"][row], strict=True):
            outputs["history.next"][row, :, position] = token % 11
            hidden = (3 * hidden + token) % 19
            inputs["tally"][row] = (5 * inputs["tally"][row] + token) % 23
        outputs["hidden.next"][row] = hidden
        outputs["tally.next"][row] = inputs["tally"][row]
        history = inputs["history"][row, 1, :total, 2].tolist()
        key = (
            hidden[3]
            + inputs["tally"][row, 0]
            + sum((i + 2) * value for i, value in enumerate(history))
        )
        if "memory" in inputs:
            length = int(inputs["source_lengths"][row])
            memory = inputs["memory"][row, 1, :length, 2].tolist()
            key += (
                sum((i + 1) * value for i, value in enumerate(memory)) + inputs["summary"][row, 0]
            )
        if "candidates" in inputs:
            _write_scores_of_shortlist(row, float(key), inputs, outputs)
        else:
            logp = np.full(VOCAB_SIZE, -np.inf, np.float32)
            logp[[*script.possible]] = log_softmax(float(key), np.array(script.possible))
            if np.isnan(key):
                logp[:] = np.nan
            _write_scores(row, logp, np.arange(VOCAB_SIZE), outputs)


def _write_scores_of_shortlist(
    row: int, key: float, inputs: dict[str, Array], outputs: dict[str, Array]
) -> None:
    ids = inputs["candidates"][inputs["shortlist"][row]]
    length = int(inputs["shortlist_lengths"][row])
    assert (np.diff(ids[:length]) > 0).all()
    logp = np.full(len(ids), -np.inf, np.float32)
    logp[:length] = log_softmax(key, ids[:length])
    _write_scores(row, logp, ids, outputs)


def _write_scores(row: int, logp: Array, ids: Array, outputs: dict[str, Array]) -> None:
    order = np.argsort(-logp, kind="stable")[:WINDOW]
    outputs["logp"][row] = logp
    outputs["log_normaliser"][row] = 0
    outputs["top_logp"][row], outputs["top_ids"][row] = logp[order], ids[order]


def _step_spec(
    states: tuple[StateSpec, ...], ids_axis: int | str, has_shortlist: bool
) -> GraphSpec:
    inputs = [
        _tensor("ids", "int64", ids_axis),
        _tensor("past_lengths", "int32"),
        _tensor("total_lengths", "int32"),
    ]
    if MEMORY in states:
        inputs.append(_tensor("source_lengths", "int32"))
    inputs += SHORTLIST_INPUTS.values() if has_shortlist else ()
    inputs += [_tensor(spec.name, spec.dtype, *spec.shape) for spec in states]
    outputs = [
        _tensor("logp", "float32", CANDIDATES if has_shortlist else VOCAB_SIZE),
        _tensor("top_logp", "float32", WINDOW),
        _tensor("top_ids", "int64", WINDOW),
        _tensor("log_normaliser", "float32"),
    ]
    outputs += [
        _tensor(f"{spec.name}.next", spec.dtype, *spec.shape)
        for spec in states
        if spec.kind is not StateKind.CONSTANT
    ]
    return GraphSpec("step.onnx", tuple(inputs), tuple(outputs))


def _tensor(name: str, dtype: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name, dtype, ("batch", *shape))
