"""Training on the device: the losses of the CPU in fp32, no step that waits, and its speed."""

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from models.architectures.registry import parse_config
from models.data.batching import ParallelData, ProseData
from models.loading import build
from models.training.config import OptimizerConfig
from models.training.learning import BatchLoader, Learner, can_compile, compile_where_it_pays
from models.training.optimizer import Arithmetic, Optimizer
from tests.gpu.figures.shapes import SHAPES
from tests.gpu.findings import Aim, Finding, none_of
from tests.gpu.parts import Place
from tests.tiny import CONFIGS

FAMILIES = ["transformer", "llama", "bahdanau", "luong", "transformer-ssru"]
STEPS = 30
LARGEST_ERROR = {torch.float32: 0.01, torch.bfloat16: 0.1}  # nats a token, of the last losses
SPEED_STEPS = 40
TOKENS_PER_BATCH = 16384


def find(place: Place) -> Iterator[Finding]:
    device = torch.device(place.device)
    families, steps = (FAMILIES[:1], 3) if place.is_tiny else (FAMILIES, STEPS)
    for family in families:
        config = parse_config({"architecture": family, "vocab_size": 259, **CONFIGS[family]})
        config = config.model_copy(update={"dropout": 0.0})
        on_cpu = _learner(config, Arithmetic(torch.device("cpu"), torch.float32, ""))
        expected = _losses(on_cpu, config, steps)[-5:]
        for products in (torch.float32, torch.bfloat16):
            learner = _learner(config, Arithmetic(device, products, ""))
            found = _losses(learner, config, steps)[-5:]
            error = float(np.abs(np.subtract(found, expected)).mean())
            what = f"{family} in {learner.arithmetic.name}: losses, from those of the CPU"
            note = f"{np.mean(found):.3f} nats a token after {steps} steps"
            yield Finding(what, error, "nats", Aim("at most", LARGEST_ERROR[products]), note)
        yield none_of(
            f"{family}: steps that wait for the device", _waits(learner, config), "places"
        )
    if not place.is_tiny:
        yield from _speeds(device)


def _learner(config: Any, arithmetic: Arithmetic) -> Learner:
    torch.manual_seed(0)
    module = build(config).to(arithmetic.device).train()
    optimizer = OptimizerConfig(name="muon", learning_rate=0.005)
    return Learner(module, Optimizer(module, optimizer, arithmetic.products), arithmetic, 0.1)


def _data(config: Any, count: int, longest: int) -> ParallelData | ProseData:
    """Texts that can be learned: of few words, the target backwards."""
    random = np.random.default_rng(0)
    ids = [random.integers(3, 40, n).tolist() for n in random.integers(4, longest, count)]
    if config.task == "generate":
        return ProseData(np.array([i for text in ids for i in text], np.int32), longest, config)
    return ParallelData(ids, [text[::-1] for text in ids], np.ones(count), config)


def _losses(learner: Learner, config: Any, steps: int) -> list[float]:
    data, device = _data(config, 200, 20), learner.arithmetic.device
    loader = BatchLoader(data, device, builds_ahead=device.type == "cuda")
    epochs = [each for number in range(steps) for each in data.epoch(0, number, 512)]
    losses = [learner.learn(batch, 1.0) for batch in loader.batches(epochs[:steps])]
    found: list[float] = torch.stack(losses).tolist()
    return found


def _waits(learner: Learner, config: Any) -> list[str]:
    """Where a step makes the host wait, as torch warns of it."""
    if learner.arithmetic.device.type != "cuda":
        return []
    data = _data(config, 50, 20)
    loader = BatchLoader(data, learner.arithmetic.device, builds_ahead=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        for batch in loader.batches(data.epoch(0, 0, 512)):
            learner.learn(batch, 1.0)
        torch.cuda.set_sync_debug_mode("default")
    places = {
        f"{each.filename}:{each.lineno}"
        for each in caught
        if "called a synchronizing" in str(each.message)
    }
    return sorted(places)


def _speeds(device: torch.device) -> Iterator[Finding]:
    shape = next(each for each in SHAPES if each.name == "Transformer-base")
    config = parse_config({"architecture": shape.architecture, **shape.sizes})
    for is_compiled in (False, True):
        learner = _learner(config, Arithmetic(device, torch.bfloat16, ""))
        if is_compiled:
            if not can_compile():
                return
            compile_where_it_pays(learner.module, learner.arithmetic)
        how = "compiled" if is_compiled else "as it is"
        speed = _tokens_per_second(learner, config)
        yield Finding(f"{shape.name} in bf16, {how}", speed, "target tokens/s")


def _tokens_per_second(learner: Learner, config: Any) -> float:
    data = _data(config, 20_000, 60)
    epoch = data.epoch(0, 0, TOKENS_PER_BATCH)
    num_tokens, started = 0, 0.0
    batches = BatchLoader(data, learner.arithmetic.device, builds_ahead=True).batches(epoch)
    for step, batch in enumerate(batches):
        if step == SPEED_STEPS // 2:
            torch.cuda.synchronize()
            num_tokens, started = 0, time.perf_counter()
        learner.learn(batch, 1.0)
        num_tokens += batch.num_tokens
        if step == SPEED_STEPS:
            break
    batches.close()
    torch.cuda.synchronize()
    return num_tokens / (time.perf_counter() - started)
