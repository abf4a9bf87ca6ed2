"""Torch on one thread: its models are tiny here, and idle threads of a pool wait busily."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> None:
    import torch

    torch.set_num_threads(1)
