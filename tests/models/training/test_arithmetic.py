"""The numbers that a run multiplies in: bf16 where the machine has instructions for it alone."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from models.cli import train
from models.training.config import OptimizerConfig, read_config
from models.training.optimizer import Arithmetic, Muon, Optimizer, choose_arithmetic, orthogonalise
from models.training.trainer import Trainer
from tests.models.training.toy_run import write_config, write_data

CPU = torch.device("cpu")
PROCESSORS = [
    ({"architecture": "x86_64", "avx2": True, "avx512_f": False}, "fp32"),
    ({"architecture": "x86_64", "avx512_f": True, "avx512_vnni": True}, "fp32"),
    ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": True}, "bf16"),
    ({"architecture": "x86_64", "amx_bf16": True}, "bf16"),
    ({"architecture": "arm64", "neon": True, "bf16": False}, "fp32"),
    ({"architecture": "arm64", "neon": True, "bf16": True}, "bf16"),
]


class Seen(TorchDispatchMode):
    """The types of what is calculated."""

    def __init__(self) -> None:
        super().__init__()
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        self.types |= {result.dtype} if isinstance(result, Tensor) else set()
        return result


def pretend(patch: pytest.MonkeyPatch, capabilities: dict[str, Any], *, by_onednn: bool) -> None:
    """A processor with these, and oneDNN's word for whether it multiplies in bf16."""
    patch.setattr(torch.cuda, "is_available", lambda: False)
    patch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    patch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    patch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: by_onednn, raising=False)


@pytest.mark.parametrize(("capabilities", "expected"), PROCESSORS)
def test_bf16_is_for_processors_with_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, Any], expected: str
) -> None:
    pretend(monkeypatch, capabilities, by_onednn=True)
    assert choose_arithmetic("bf16").name == expected
    assert choose_arithmetic("fp32").name == "fp32"
    pretend(monkeypatch, capabilities, by_onednn=False)
    assert choose_arithmetic("bf16").name == "fp32", "oneDNN may be told to do without"


@pytest.mark.parametrize("supported", [True, False])
def test_a_gpu_is_taken_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, supported: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: supported)
    chosen = choose_arithmetic("bf16")
    assert (chosen.device.type, chosen.name) == ("cuda", "bf16" if supported else "fp32")


@pytest.mark.parametrize("expected", ["fp32", "bf16"])
def test_no_step_computes_in_what_the_processor_has_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, expected: str
) -> None:
    pretend(monkeypatch, {"avx512_bf16": expected == "bf16"}, by_onednn=True)
    write_data(tmp_path)
    config = read_config(write_config(tmp_path, steps=2, precision="bf16"))
    with Seen() as seen:
        Trainer(config, tmp_path, tmp_path / "run").run()
    assert (torch.bfloat16 in seen.types) == (expected == "bf16")
    card = (tmp_path / "run/checkpoint/README.md").read_text()
    assert f"({expected} on CPU" in " ".join(card.split())


def test_the_log_says_what_was_taken_and_when_it_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_data(tmp_path)
    pretend(monkeypatch, {"avx512_bf16": True}, by_onednn=True)
    first = run(tmp_path, steps=6)
    assert "training in bf16 on CPU" in first
    pretend(monkeypatch, {"avx2": True}, by_onednn=False)
    second = run(tmp_path, steps=12)
    assert "after step 6 (in bf16 until now) in fp32 on CPU" in second
    assert "no instructions for bf16" in second
    rows = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [6, 12]
    assert rows[1]["dev_loss"] < rows[0]["dev_loss"]


def run(folder: Path, steps: int) -> str:
    config = write_config(folder, steps=steps, precision="bf16")
    arguments = [str(config), "--data", str(folder), "-o", str(folder / "run")]
    result = CliRunner().invoke(train, arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("shape", [(24, 10), (10, 24), (16, 16)])
def test_muon_in_bf16_is_that_of_torch(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    ours, theirs = (nn.Parameter(torch.ones(shape)) for _ in range(2))
    optimizers = [
        Muon([ours], 0.02, 0.1, torch.bfloat16),
        torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    ]
    for _ in range(4):
        ours.grad = torch.randn(shape)
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("shape", [(24, 10), (10, 24), (16, 16)])
def test_muon_in_fp32_turns_matrices_as_the_singular_value_decomposition_says(
    shape: tuple[int, int],
) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    made = orthogonalise(matrix)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    rotated = u.T @ made @ v.T
    assert made.dtype == torch.float32
    assert rotated.diagonal().min() > 0.6
    assert rotated.diagonal().max() < 1.3
    torch.testing.assert_close(
        rotated, rotated.diagonal().diag(), rtol=0.0, atol=1e-3, msg="the same singular vectors"
    )


def test_muon_makes_every_gate_orthogonal_by_itself() -> None:
    torch.manual_seed(0)
    joined = nn.Parameter(torch.ones(30, 8))
    gates = [nn.Parameter(torch.ones(10, 8)) for _ in range(3)]
    joined.grad = torch.randn(30, 8)
    for gate, gradient in zip(gates, joined.grad.chunk(3), strict=True):
        gate.grad = gradient.clone()
    Muon([{"params": [joined], "num_blocks": 3}], 0.02, 0.1, torch.float32).step()
    Muon(gates, 0.02, 0.1, torch.float32).step()
    torch.testing.assert_close(joined, torch.cat(gates))


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_only_matrices_decay(name: Literal["adamw", "muon"]) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Embedding(4, 4), nn.Linear(4, 1))
    config = OptimizerConfig(name=name, learning_rate=0.1, weight_decay=1.0)
    optimizer = Optimizer(module, config, torch.float32)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step(scale=1.0)
    changed = {key for key, value in module.state_dict().items() if (value != before[key]).any()}
    assert changed == {"0.weight"}


def test_an_arithmetic_reads_as_one_line() -> None:
    line = str(Arithmetic(CPU, torch.float32, "the recipe wants it"))
    assert line == f"fp32 on CPU, {torch.get_num_threads()} threads: the recipe wants it"
