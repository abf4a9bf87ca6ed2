"""Checks that a manifest makes sense by itself: graphs, states and token ids must agree.

Every check yields its problems as lines; none raises.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from serving.bundle.encoders import encoder_problems
from serving.bundle.manifest import (
    BATCH,
    CANDIDATES,
    EDITS,
    FORMAT_VERSION,
    POSITIONS,
    SELECT,
    SHORTLIST_FILE,
    SOURCE_TYPES,
    TOKENIZER_FILE,
    UNION,
    VERIFY,
    WANTS_LOGP,
    GraphSpec,
    Manifest,
    Shape,
    StateKind,
    StateSpec,
    Task,
    TensorSpec,
)
from serving.bundle.telling import attention_problems

_GRAPHS_OF = {
    Task.TRANSLATE: {"encode", "step"},
    Task.GENERATE: {"step"},
    Task.EMBED: {"encode"},
    Task.CLASSIFY: {"encode"},
}
ENCODE_INPUTS = ("source_ids", "source_lengths", SOURCE_TYPES)
STEP_INPUTS = ("ids", "past_lengths", "total_lengths", "source_lengths", WANTS_LOGP)
SHORTLIST_INPUTS = {
    "candidates": TensorSpec("candidates", "int64", (UNION,)),
    "shortlist": TensorSpec("shortlist", "int64", (BATCH, CANDIDATES)),
    "shortlist_lengths": TensorSpec("shortlist_lengths", "int32", (BATCH,)),
}
SELECT_COLUMNS = {
    "log_normaliser": "float32",
    "uniform": "float64",
    "exponent": "float32",
    "top_k": "int64",
    "top_p": "float64",
    "min_p": "float32",
}
SELECT_EDITS = {"ids": "int64", "bias": "float64", "penalty": "float64", "toll": "float64"}
SELECT_OUTPUTS = {"token_ids": "int64", "token_logp": "float32", "is_dead": "bool"}
STEP_OUTPUTS = ("logp", "top_logp", "top_ids", "log_normaliser")


def manifest_problems(manifest: Manifest) -> Iterator[str]:
    if manifest.format_version != FORMAT_VERSION:
        yield (
            f"format_version: {manifest.format_version} is not supported, "
            f"this version reads {FORMAT_VERSION}"
        )
        return
    yield from _general_problems(manifest)
    yield from _graph_problems(manifest)
    yield from encoder_problems(manifest)
    names = [state.name for state in manifest.states]
    yield from (f"states.{name}: named twice" for name in sorted({*names}) if names.count(name) > 1)
    for state in manifest.states:
        yield from _state_problems(state, manifest.graphs)
    yield from _output_problems(manifest)
    yield from attention_problems(manifest)
    yield from _select_problems(manifest)
    yield from _verify_problems(manifest)


def _general_problems(manifest: Manifest) -> Iterator[str]:
    if not manifest.name:
        yield "name: must not be empty"
    decoding = (
        ("limits.max_target_tokens", manifest.limits.max_target_tokens),
        ("window", manifest.window),
    )
    for path, value in (
        ("limits.max_source_tokens", manifest.limits.max_source_tokens),
        ("vocab_size", manifest.vocab_size),
        *(() if manifest.task.only_encodes else decoding),
    ):
        if value is not None and value < 1:
            yield f"{path}: {value} is not positive"
    tokens = manifest.tokens
    if not tokens.stop and not manifest.task.only_encodes:
        yield "tokens.stop: must not be empty"
    if tokens.forced_eos is not None and tokens.forced_eos not in tokens.stop:
        yield f"tokens.forced_eos: {tokens.forced_eos} is not one of tokens.stop"
    if manifest.task is Task.TRANSLATE:
        for side in ("source_languages", "target_languages"):
            if not getattr(manifest, side):
                yield f"{side}: must not be empty for task translate"


def _graph_problems(manifest: Manifest) -> Iterator[str]:
    wanted = _GRAPHS_OF[manifest.task]
    yield from (f"graphs.{name}: missing" for name in sorted(wanted - manifest.graphs.keys()))
    for name in (graph.file for graph in manifest.graphs.values()):
        if name not in manifest.files:
            yield f"files: no checksum for {name}"
    if TOKENIZER_FILE not in manifest.files:
        yield f"files: no checksum for {TOKENIZER_FILE}"
    for name in manifest.files:
        if PurePath(name).name != name or name in ("", ".", ".."):
            yield f"files: {name!r} is not the name of a file in this folder"


def _state_problems(state: StateSpec, graphs: dict[str, GraphSpec]) -> Iterator[str]:
    """Where a state of each kind must appear, with its own type and shape."""
    step, encode = graphs.get("step"), graphs.get("encode")
    if step is not None:
        yield from _tensor_problems(state, state.name, step.inputs, "graphs.step.inputs")
        if state.kind is not StateKind.CONSTANT:
            name = f"{state.name}.next"
            yield from _tensor_problems(state, name, step.outputs, "graphs.step.outputs")
    if encode is not None and state.kind is StateKind.CONSTANT:
        yield from _tensor_problems(state, state.name, encode.outputs, "graphs.encode.outputs")


def _tensor_problems(
    state: StateSpec, name: str, tensors: tuple[TensorSpec, ...], where: str
) -> Iterator[str]:
    found = next((tensor for tensor in tensors if tensor.name == name), None)
    if found is None:
        yield f"states.{state.name}: {name} is not among {where}"
        return
    shape: Shape = (BATCH, *state.shape)
    if (found.dtype, found.shape) != (state.dtype, shape):
        yield (
            f"states.{state.name}: {where} has {name} as {found.dtype} {list(found.shape)}, "
            f"the state is {state.dtype} {list(shape)}"
        )


def _output_problems(manifest: Manifest) -> Iterator[str]:
    """Check the engine's inputs and outputs: none it cannot feed, everything it must read."""
    states = {state.name for state in manifest.states}
    step_inputs = (*STEP_INPUTS, *SHORTLIST_INPUTS)
    for name, known in (("encode", ENCODE_INPUTS), ("step", step_inputs)):
        graph = manifest.graphs.get(name)
        for tensor in graph.inputs if graph else ():
            if tensor.name not in known and tensor.name not in states:
                yield f"graphs.{name}.inputs: {tensor.name} is neither a state nor {known}"
    step = manifest.graphs.get("step")
    outputs = {tensor.name: tensor for tensor in step.outputs} if step else {}
    for name in STEP_OUTPUTS if step else ():
        if name not in outputs:
            yield f"graphs.step.outputs: {name} is missing"
    if step is not None and manifest.has_shortlist:
        yield from _shortlist_problems(manifest, step)
    if "logp" in outputs:
        width = CANDIDATES if manifest.has_shortlist else manifest.vocab_size
        if outputs["logp"].shape != (BATCH, width):
            shape = list(outputs["logp"].shape)
            yield f"graphs.step.outputs: logp has shape {shape}, expected [batch, {width}]"
    yield from _vocabulary_problems(manifest)


def _shortlist_problems(manifest: Manifest, step: GraphSpec) -> Iterator[str]:
    for name, expected in SHORTLIST_INPUTS.items():
        if expected not in step.inputs:
            shape = list(expected.shape)
            yield f"graphs.step.inputs: {name} is missing or not {expected.dtype} {shape}"
    if SHORTLIST_FILE not in manifest.files:
        yield f"files: no checksum for {SHORTLIST_FILE}"


def _select_problems(manifest: Manifest) -> Iterator[str]:
    """Check that the graph which chooses tokens reads and writes what the engine has for it."""
    graph, vocab_size = manifest.graphs.get(SELECT), manifest.vocab_size
    if graph is None:
        return
    inputs = {TensorSpec(name, dtype, (BATCH,)) for name, dtype in SELECT_COLUMNS.items()}
    inputs |= {
        TensorSpec(f"edit_{name}", dtype, (BATCH, EDITS)) for name, dtype in SELECT_EDITS.items()
    }
    inputs.add(TensorSpec("logp", "float32", (BATCH, vocab_size)))
    inputs.add(TensorSpec("is_excluded", "bool", (vocab_size,)))
    outputs = {TensorSpec(name, dtype, (BATCH,)) for name, dtype in SELECT_OUTPUTS.items()}
    for end, found, wanted in (("in", graph.inputs, inputs), ("out", graph.outputs, outputs)):
        for name in sorted({tensor.name for tensor in {*found} ^ wanted}):
            yield f"graphs.{SELECT}.{end}puts: {name} is missing, not known or not as expected"


def _verify_problems(manifest: Manifest) -> Iterator[str]:
    """Check that the graph which scores several tokens of a row is the step graph in what it reads
    and writes, and that what it was wrong about can be taken back: only appended states can.
    """
    graph, step = manifest.graphs.get(VERIFY), manifest.graphs.get("step")
    if graph is None or step is None:
        return
    for state in manifest.states:
        if state.kind is not StateKind.APPEND:
            yield f"graphs.{VERIFY}: {state.name} cannot be taken back, it is no append state"
    match next((tensor.shape for tensor in graph.inputs if tensor.name == "ids"), ()):
        case "batch", int(count) if count > 1:
            pass
        case shape:
            found = f"{list(shape)}, expected [batch, 2 or more]"
            yield f"graphs.{VERIFY}.inputs: ids has shape {found}"
    known = {*step.inputs, TensorSpec(WANTS_LOGP, "bool", ())}
    for tensor in graph.inputs:
        if tensor.name != "ids" and tensor not in known:
            yield f"graphs.{VERIFY}.inputs: {tensor.name} is not one of graphs.step"
    for tensor in step.outputs:
        is_state = tensor.name not in STEP_OUTPUTS
        wanted = tensor if is_state else replace(tensor, shape=(POSITIONS, *tensor.shape[1:]))
        if wanted not in graph.outputs:
            yield f"graphs.{VERIFY}.outputs: {tensor.name} is missing or not as expected"


def _vocabulary_problems(manifest: Manifest) -> Iterator[str]:
    tokens, vocab_size = manifest.tokens, manifest.vocab_size
    languages = (*tokens.sources.values(), *tokens.targets.values())
    source_ids = {*tokens.source_prefix, *tokens.source_suffix}
    target_ids = {tokens.pad, tokens.bos, tokens.eos, *tokens.prompt_prefix, *tokens.stop}
    for language in languages:
        source_ids.update(language.source_prefix, language.source_suffix)
        target_ids.update(language.prompt_prefix)
    if manifest.encoder is not None:
        source_ids.update(manifest.encoder.separator or ())
    target_ids |= {each for each in (tokens.unk, tokens.forced_eos) if each is not None}
    yield from _ids_outside(source_ids - target_ids, manifest.source_vocab_size or vocab_size)
    yield from _ids_outside(target_ids, vocab_size)
    if manifest.window > vocab_size:
        yield f"window: {manifest.window} is larger than the vocabulary of {vocab_size}"


def _ids_outside(token_ids: set[int], vocab_size: int) -> Iterator[str]:
    for token_id in sorted(token_ids):
        if not 0 <= token_id < vocab_size:
            yield f"tokens: id {token_id} is outside the vocabulary of {vocab_size}"
