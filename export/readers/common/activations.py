"""Reads activations by the names that other libraries give them."""

from export.readers.common.options import Options

ACTIVATIONS = {  # theirs -> ours
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
}


def read_activation(options: Options, name: str, default: str) -> str:
    """Read the option `name` as one of ours; one that we have not is a problem."""
    word = options.word(name, default)
    if word not in ACTIVATIONS:
        options.refuse(name)
    return ACTIVATIONS.get(word, "relu")
