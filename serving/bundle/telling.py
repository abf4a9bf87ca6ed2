"""Checks what a manifest says of attention: the graphs that tell of it, and of which heads."""

from collections.abc import Iterator

from serving.bundle.manifest import (
    ATTENDED,
    ATTENTION_OUTPUTS,
    BATCH,
    ENCODE_ATTENTION,
    SOURCE,
    STEP_ATTENTION,
    AttentionKind,
    GraphSpec,
    Manifest,
    Shape,
    TensorSpec,
)

TOKENS = "tokens"  # that the step graph reads at once
HOPS = "hops"  # of an embedding: a number
AXES: dict[AttentionKind, Shape] = {
    AttentionKind.CROSS: (SOURCE,),
    AttentionKind.ENCODER: (SOURCE, SOURCE),
    AttentionKind.DECODER: (TOKENS, ATTENDED),
    AttentionKind.HOPS: (HOPS, SOURCE),
}
SPAN = TensorSpec(ATTENDED, "int64", (1,))


def attention_problems(manifest: Manifest) -> Iterator[str]:
    """Check that graphs which also give attention are in all other things those without."""
    for name, plain in ((STEP_ATTENTION, "step"), (ENCODE_ATTENTION, "encode")):
        graph, other = manifest.graphs.get(name), manifest.graphs.get(plain)
        if graph is not None and other is not None:
            yield from _graph_problems(name, graph, plain, other)
    for kind in AttentionKind:
        yield from _kind_problems(manifest, kind)
    for name in sorted(manifest.attention.keys() - {*AttentionKind}):
        yield f"attention.{name}: is none of {', '.join(AttentionKind)}"
    yield from _alignment_problems(manifest)


def _graph_problems(name: str, graph: GraphSpec, plain: str, other: GraphSpec) -> Iterator[str]:
    told = {output for graph_name, output in ATTENTION_OUTPUTS.values() if graph_name == name}
    found = {tensor for tensor in graph.outputs if tensor.name in told}
    inputs, outputs = {*graph.inputs} - {SPAN}, {*graph.outputs} - found
    if (inputs, outputs) != ({*other.inputs}, {*other.outputs}):
        yield f"graphs.{name}: inputs or outputs are not those of graphs.{plain} and attention"
    if not found:
        yield f"graphs.{name}.outputs: attention is missing"


def _kind_problems(manifest: Manifest, kind: AttentionKind) -> Iterator[str]:
    """Check the output that tells of a kind, and that its heads are those of all layers."""
    graph, name = ATTENTION_OUTPUTS[kind]
    spec, said = manifest.attention_output(kind), manifest.attention.get(kind)
    if spec is None:
        if said is not None:
            yield f"attention.{kind}: graphs.{graph} has no output {name}"
    elif not _has_axes(spec, AXES[kind]):
        expected = ", ".join(map(str, (BATCH, "heads", *AXES[kind])))
        yield (
            f"graphs.{graph}.outputs: {name} is {spec.dtype} {list(spec.shape)}, "
            f"expected float32 [{expected}]"
        )
    elif said is not None and said.num_maps != spec.shape[1]:
        heads = f"{said.num_layers} layers of {said.num_heads} heads"
        yield f"attention.{kind}: {heads}, but graphs.{graph} gives {spec.shape[1]} in all"
    elif said is None and (manifest.attention or kind is not AttentionKind.CROSS):
        yield f"attention.{kind}: missing, graphs.{graph} gives {name}"


def _has_axes(spec: TensorSpec, axes: Shape) -> bool:
    """Tell whether it is f32 [batch, heads, *axes]; of tokens there may be one at a time."""
    match spec.dtype, spec.shape:
        case "float32", ("batch", int(), *others):
            pairs = zip(others, axes, strict=False)
            return len(others) == len(axes) and all(_fits(*pair) for pair in pairs)
    return False


def _fits(found: int | str, axis: int | str) -> bool:
    is_hops = axis == HOPS and isinstance(found, int)
    return found == axis or is_hops or (axis, found) == (TOKENS, 1)


def _alignment_problems(manifest: Manifest) -> Iterator[str]:
    """Check that there are heads which align words where there is attention over a source."""
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
