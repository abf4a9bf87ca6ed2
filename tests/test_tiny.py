"""Tiny models: a new architecture has one without a line in tests/tiny.py."""

import pytest

from models.architectures.registry import ARCHITECTURES, parse_config
from tests.tiny import CONFIGS, MOST_LAYERS, shrink_defaults

OF_LISTS = {"fconv", "vision-transformer", "whisper"}  # whose sections must be given


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES.keys() - OF_LISTS))
def test_default_sizes_are_shrunk_to_sizes_that_fit_together(architecture: str) -> None:
    sizes = shrink_defaults(architecture)
    config = parse_config({"architecture": architecture, "vocab_size": 259, **sizes})
    widths = [sizes[name] for name in sizes if name.endswith(("_dim", "_model"))]
    assert max(widths) <= 256
    assert getattr(config, "num_layers", 0) <= MOST_LAYERS


def test_every_architecture_has_tiny_sizes() -> None:
    assert CONFIGS.keys() >= ARCHITECTURES.keys()
