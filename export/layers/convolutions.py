"""Writes gated convolutions (Gehring et al. 2017, 3.2), as linear layers of words side by side."""

from export.graph.value import Value
from export.layers.basic import Layers


def neighbours(layers: Layers, x: Value, kernel_size: int) -> Value:
    """Put x [batch, length, dim] beside its neighbours: [batch, length, kernel_size * dim].

    Before the beginning and beyond the end are zeros; of an even number one more comes behind.
    """
    if kernel_size == 1:
        return x
    padded = layers.pad(x, (kernel_size - 1) // 2, kernel_size // 2, axes=[1])
    shifted = [
        padded[:, first : last or None] for first, last in enumerate(range(1 - kernel_size, 1))
    ]
    joined: Value = layers.op.Concat(*shifted, axis=-1)
    return joined


def gated_convolution(
    layers: Layers, windows: Value, name: str, num_inputs: int, dim: int
) -> Value:
    """Convolve windows [..., num_inputs], inputs side by side, with a gate: [..., dim]."""
    both = layers.linear(windows, [f"{name}.linear"], num_inputs, [2 * dim], bias=True)
    values, gates = layers.graph.split(both, [dim, dim])
    return values * gates.sigmoid()
