"""Checks of a manifest: its graphs, states and token ids must fit together.

Each check yields its problems as lines; none raises.
"""

from collections.abc import Iterator, Mapping
from math import inf
from pathlib import PurePath

from serving.bundle.manifest import (
    ATTENDED,
    ATTENTION_OUTPUTS,
    BATCH,
    CANDIDATES,
    EDITS,
    ENCODE_ATTENTION,
    FEATURES,
    FORMAT_VERSION,
    LOGITS,
    LOGP,
    PIXELS,
    SELECT,
    SHORTLIST_FILE,
    SOURCE,
    SOURCE_TYPES,
    STEP_ATTENTION,
    TOKENIZER_FILE,
    TOP_IDS,
    TOP_LOGP,
    UNION,
    WANTS_LOGP,
    AttentionKind,
    GraphSpec,
    Manifest,
    Shape,
    StateKind,
    StateSpec,
    Task,
    TensorSpec,
)
from serving.bundle.source_validation import (
    audio_problems,
    encoder_problems,
    missing,
    picture_problems,
)

_GRAPHS_OF = {
    Task.TRANSLATE: {"encode", "step"},
    Task.GENERATE: {"step"},
    Task.TRANSCRIBE: {"encode", "step"},
    Task.EMBED: {"encode"},
    Task.CLASSIFY: {"encode"},
    Task.CLASSIFY_TOKENS: {"encode"},
    Task.FILL_MASK: {"encode"},
}
ENCODE_INPUTS = ("source_ids", "source_lengths", SOURCE_TYPES, PIXELS, FEATURES)
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
STEP_OUTPUTS = (TOP_LOGP, TOP_IDS, "log_normaliser")


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
    yield from picture_problems(manifest)
    yield from audio_problems(manifest)
    names = [state.name for state in manifest.states]
    yield from (f"states.{name}: named twice" for name in sorted({*names}) if names.count(name) > 1)
    for state in manifest.states:
        yield from _state_problems(state, manifest.graphs)
    yield from _output_problems(manifest)
    yield from attention_problems(manifest)
    yield from _select_problems(manifest)


def _general_problems(manifest: Manifest) -> Iterator[str]:
    if not manifest.name:
        yield "name: must not be empty"
    decoding = (
        ("limits.max_target_tokens", manifest.limits.max_target_tokens),
        ("window", manifest.window),
    )
    for path, value in (
        ("limits.max_source_tokens", manifest.limits.max_source_tokens),
        ("limits.split_tokens", manifest.limits.split_tokens),
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
    yield from _processor_problems(manifest)
    if manifest.translation_message:
        yield from _translation_problems(manifest)
    if manifest.serves is Task.TRANSLATE:
        for side in ("source_languages", "target_languages"):
            if not getattr(manifest, side):
                yield f"{side}: must not be empty for task translate"


def _processor_problems(manifest: Manifest) -> Iterator[str]:
    processors, path = manifest.logits_processors, "logits_processors"
    if wrong := {i for i in processors.token_ids if not 0 <= i < manifest.vocab_size}:
        yield f"{path}: {min(wrong)} is no token: ids go from 0 to {manifest.vocab_size - 1}"
    if () in processors.bad_words_ids:
        yield f"{path}.bad_words_ids: a word is empty"
    if processors.encoder_no_repeat_ngram_size < 0:
        size = processors.encoder_no_repeat_ngram_size
        yield f"{path}.encoder_no_repeat_ngram_size: {size} is negative"
    decay = processors.exponential_decay_length_penalty
    for name, value in (
        ("encoder_repetition_penalty", processors.encoder_repetition_penalty),
        ("exponential_decay_length_penalty", 1.0 if decay is None else decay.factor),
    ):
        if not 0 < value < inf:
            yield f"{path}.{name}: {value} is not positive"


def _translation_problems(manifest: Manifest) -> Iterator[str]:
    if manifest.task is not Task.GENERATE:
        yield f"translation_message: must not be there for task {manifest.task}"
    if manifest.chat_template is None:
        yield "translation_message: needs a chat_template"
    if str(manifest.translation_message).count("{text}") != 1:
        yield "translation_message: must have {text} once"


def _graph_problems(manifest: Manifest) -> Iterator[str]:
    required = _GRAPHS_OF[manifest.task]
    yield from (f"graphs.{name}: missing" for name in sorted(required - manifest.graphs.keys()))
    for name in (graph.file for graph in manifest.graphs.values()):
        if name not in manifest.files:
            yield f"files: no checksum for {name}"
    if TOKENIZER_FILE not in manifest.files:
        yield f"files: no checksum for {TOKENIZER_FILE}"
    for name in manifest.files:
        if PurePath(name).name != name or name in ("", ".", ".."):
            yield f"files: {name!r} is not the name of a file in this folder"


def _state_problems(state: StateSpec, graphs: dict[str, GraphSpec]) -> Iterator[str]:
    """Check that a state is an input and output of the graphs, with its type and shape."""
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
    match = next((tensor for tensor in tensors if tensor.name == name), None)
    if match is None:
        yield f"states.{state.name}: {name} is not among {where}"
        return
    shape: Shape = (BATCH, *state.shape)
    if (match.dtype, match.shape) != (state.dtype, shape):
        yield (
            f"states.{state.name}: {where} has {name} as {match.dtype} {list(match.shape)}, "
            f"the state is {state.dtype} {list(shape)}"
        )


def _output_problems(manifest: Manifest) -> Iterator[str]:
    """Check that the engine has all inputs of the graphs, and gets all outputs that it reads."""
    states = {state.name for state in manifest.states}
    step_inputs = (*STEP_INPUTS, *SHORTLIST_INPUTS)
    for name, input_names in (("encode", ENCODE_INPUTS), ("step", step_inputs)):
        graph = manifest.graphs.get(name)
        for tensor in graph.inputs if graph else ():
            if tensor.name not in input_names and tensor.name not in states:
                yield f"graphs.{name}.inputs: {tensor.name} is neither a state nor {input_names}"
    step = manifest.graphs.get("step")
    outputs = {tensor.name: tensor for tensor in step.outputs} if step else {}
    for name in STEP_OUTPUTS if step else ():
        if name not in outputs:
            yield f"graphs.step.outputs: {name} is missing"
    if step is not None and manifest.has_shortlist:
        yield from _shortlist_problems(manifest, step)
    if step is not None:
        yield from _score_problems(manifest, outputs)
    yield from _vocabulary_problems(manifest)


def _score_problems(manifest: Manifest, outputs: Mapping[str, TensorSpec]) -> Iterator[str]:
    """Check the output for all tokens; logits may have more columns than there are tokens."""
    scores = next((outputs[name] for name in (LOGITS, LOGP) if name in outputs), None)
    if scores is None:
        yield f"graphs.step.outputs: {LOGITS} is missing"
        return
    match scores.shape:
        case [axis, width] if axis == BATCH and manifest.has_shortlist and width == CANDIDATES:
            return
        case [axis, int(width)] if axis == BATCH and not manifest.has_shortlist:
            has_room = scores.name == LOGITS and width > manifest.vocab_size
            if width == manifest.vocab_size or has_room:
                return
    expected = CANDIDATES if manifest.has_shortlist else manifest.vocab_size
    shape = list(scores.shape)
    yield f"graphs.step.outputs: {scores.name} has shape {shape}, expected [batch, {expected}]"


def _shortlist_problems(manifest: Manifest, step: GraphSpec) -> Iterator[str]:
    for expected in SHORTLIST_INPUTS.values():
        if expected not in step.inputs:
            yield f"graphs.step.inputs: {missing(expected)}"
    if SHORTLIST_FILE not in manifest.files:
        yield f"files: no checksum for {SHORTLIST_FILE}"


def _select_problems(manifest: Manifest) -> Iterator[str]:
    """Check the inputs and outputs of the graph that chooses tokens."""
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
    for end, tensors, expected in (("in", graph.inputs, inputs), ("out", graph.outputs, outputs)):
        for name in sorted({tensor.name for tensor in {*tensors} ^ expected}):
            yield f"graphs.{SELECT}.{end}puts: {name} is missing, not known or not as expected"


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
        mask_id = manifest.encoder.mask_id
        source_ids |= set() if mask_id is None else {mask_id}
    target_ids |= {token_id for token_id in (tokens.unk, tokens.forced_eos) if token_id is not None}
    yield from _ids_outside(source_ids - target_ids, manifest.source_vocab_size or vocab_size)
    yield from _ids_outside(target_ids, vocab_size)
    if manifest.window > vocab_size:
        yield f"window: {manifest.window} is larger than the vocabulary of {vocab_size}"


def _ids_outside(token_ids: set[int], vocab_size: int) -> Iterator[str]:
    for token_id in sorted(token_ids):
        if not 0 <= token_id < vocab_size:
            yield f"tokens: id {token_id} is outside the vocabulary of {vocab_size}"


TOKENS = "tokens"  # axis: tokens that the step graph reads at once
HOPS = "hops"  # axis: the number of hops of an embedding
AXES: dict[AttentionKind, Shape] = {
    AttentionKind.CROSS: (SOURCE,),
    AttentionKind.ENCODER: (SOURCE, SOURCE),
    AttentionKind.DECODER: (TOKENS, ATTENDED),
    AttentionKind.HOPS: (HOPS, SOURCE),
}
SPAN = TensorSpec(ATTENDED, "int64", (1,))


def attention_problems(manifest: Manifest) -> Iterator[str]:
    """Check that graphs with attention outputs are otherwise equal to those without."""
    for name, plain in ((STEP_ATTENTION, "step"), (ENCODE_ATTENTION, "encode")):
        graph, other = manifest.graphs.get(name), manifest.graphs.get(plain)
        if graph is not None and other is not None:
            yield from _attention_graph_problems(name, graph, plain, other)
    for kind in AttentionKind:
        yield from _kind_problems(manifest, kind)
    for name in sorted(manifest.attention.keys() - {*AttentionKind}):
        yield f"attention.{name}: is none of {', '.join(AttentionKind)}"
    yield from _alignment_problems(manifest)


def _attention_graph_problems(
    name: str, graph: GraphSpec, plain: str, other: GraphSpec
) -> Iterator[str]:
    names = {output for graph_name, output in ATTENTION_OUTPUTS.values() if graph_name == name}
    sources = {tensor for tensor in graph.outputs if tensor.name in names}
    inputs, outputs = {*graph.inputs} - {SPAN}, {*graph.outputs} - sources
    if (inputs, outputs) != ({*other.inputs}, {*other.outputs}):
        yield f"graphs.{name}: inputs or outputs are not those of graphs.{plain} and attention"
    if not sources:
        yield f"graphs.{name}.outputs: attention is missing"


def _kind_problems(manifest: Manifest, kind: AttentionKind) -> Iterator[str]:
    """Check the output of an attention kind, and that its heads are those of all layers."""
    graph, name = ATTENTION_OUTPUTS[kind]
    spec, declared = manifest.attention_output(kind), manifest.attention.get(kind)
    if spec is None:
        if declared is not None:
            yield f"attention.{kind}: graphs.{graph} has no output {name}"
    elif not _has_axes(spec, AXES[kind]):
        expected = ", ".join(map(str, (BATCH, "heads", *AXES[kind])))
        yield (
            f"graphs.{graph}.outputs: {name} is {spec.dtype} {list(spec.shape)}, "
            f"expected float32 [{expected}]"
        )
    elif declared is not None and declared.num_maps != spec.shape[1]:
        heads = f"{declared.num_layers} layers of {declared.num_heads} heads"
        yield f"attention.{kind}: {heads}, but graphs.{graph} gives {spec.shape[1]} in all"
    elif declared is None and (manifest.attention or kind is not AttentionKind.CROSS):
        yield f"attention.{kind}: missing, graphs.{graph} gives {name}"


def _has_axes(spec: TensorSpec, axes: Shape) -> bool:
    """Return whether a tensor is f32 [batch, heads, *axes]; TOKENS may be 1."""
    match spec.dtype, spec.shape:
        case "float32", ("batch", int(), *others):
            pairs = zip(others, axes, strict=False)
            return len(others) == len(axes) and all(_fits(*pair) for pair in pairs)
    return False


def _fits(size: int | str, axis: int | str) -> bool:
    is_hops = axis == HOPS and isinstance(size, int)
    return size == axis or is_hops or (axis, size) == (TOKENS, 1)


def _alignment_problems(manifest: Manifest) -> Iterator[str]:
    """Check that a model with cross-attention has alignment heads, and no other model."""
    heads, spec = manifest.alignment_heads, manifest.attention_output(AttentionKind.CROSS)
    if spec is None:
        if heads and STEP_ATTENTION not in manifest.graphs:
            yield f"alignment_heads: must be empty without a graph {STEP_ATTENTION}"
        elif heads and manifest.attention_output(AttentionKind.DECODER) is not None:
            yield "alignment_heads: must be empty without attention over a source"
        return
    if not _has_axes(spec, AXES[AttentionKind.CROSS]):
        return
    if not heads:
        yield f"alignment_heads: must not be empty with a graph {STEP_ATTENTION}"
    num_heads = int(spec.shape[1])
    for head in heads:
        if not 0 <= head < num_heads:
            yield f"alignment_heads: {head} is not one of the {num_heads} heads"
