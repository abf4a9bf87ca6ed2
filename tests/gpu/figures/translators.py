"""Greedy translation: the engine against Hugging Face's `generate` and TensorRT-LLM's own figures.

The peer has the same shape and random weights of its own, in bf16, with a static cache, compiled
where that works. Every output has the same number of tokens.
"""

from collections.abc import Iterator

import torch
from transformers import BartConfig, BartForConditionalGeneration

from loadtest.bench.closed_loop import Result
from serving.bundle.manifest import Precision
from tests.gpu.bundles import bundle_of
from tests.gpu.figures.clock import seconds_of
from tests.gpu.figures.engine_speed import new_engine, speed
from tests.gpu.figures.shapes import Shape, shape_at
from tests.gpu.findings import Aim, Finding
from tests.gpu.parts import Place

BATCHES = [32, 64, 128]
# Output tokens a second of BART-large on one H100 by TensorRT-LLM, as NVIDIA has published them;
# their lengths of sources and targets are not known to be those measured here.
TENSORRT_LLM = {32: 10_700, 64: 16_200, 128: 23_500}


def find(place: Place) -> Iterator[Finding]:
    shape, batches = shape_at(place), [2] if place.is_tiny else BATCHES
    ours: dict[int, float] = {}
    bundle = bundle_of(shape.architecture, shape.sizes, Precision.FP16, place.folder)
    engine = new_engine(place, bundle, max(batches), shape.source)
    for batch in batches:
        result = speed(engine, bundle, shape, batch)
        ours[batch] = result.tokens_per_second
        yield from _of_engine(shape, batch, result)
    model = _peer(shape, torch.device(place.device))
    for batch in batches:
        yield _against_peer(model, shape, batch, ours[batch], is_compiled=False)
    if not place.is_tiny:  # it takes a minute to compile for each batch
        yield _against_peer(model, shape, batches[1], ours[batches[1]], is_compiled=True)


def _of_engine(shape: Shape, batch: int, result: Result) -> Iterator[Finding]:
    name, speed_found = f"{shape.name}, batch {batch}", result.tokens_per_second
    yield Finding(f"{name}: engine", speed_found, "tokens/s", note=result.line)
    share = result.host_ms["p50"] / result.step_ms["p50"]
    aim = Aim("at most", 0.15) if batch == 32 else None
    yield Finding(f"{name}: host's share of a step", share, "", aim)
    if shape.name == "BART-large":
        published = TENSORRT_LLM[batch]
        note = f"{published:,} tokens/s as published"
        what = f"{name}: engine over TensorRT-LLM on an H100"
        yield Finding(what, speed_found / published, "", Aim("at least", 1.0), note)


def _against_peer(
    model: BartForConditionalGeneration,
    shape: Shape,
    batch: int,
    ours: float,
    is_compiled: bool,
) -> Finding:
    how = "static cache, compiled" if is_compiled else "static cache"
    name = f"{shape.name}, batch {batch}: engine over `generate`, {how}"
    try:
        seconds = _generate_seconds(model, shape, batch, is_compiled)
    except Exception as error:  # whatever a compiler may raise: it is said, and is no result
        return Finding(name, 0, "not measured", note=f"{type(error).__name__}: {error}"[:200])
    theirs = batch * shape.target / seconds
    return Finding(name, ours / theirs, "", Aim("at least", 8.0), f"{theirs:,.0f} tokens/s")


def _peer(shape: Shape, device: torch.device) -> BartForConditionalGeneration:
    sizes = shape.sizes
    config = BartConfig(
        vocab_size=sizes["vocab_size"],
        d_model=sizes["d_model"],
        encoder_layers=sizes["encoder_layers"],
        decoder_layers=sizes["decoder_layers"],
        encoder_attention_heads=sizes["num_heads"],
        decoder_attention_heads=sizes["num_heads"],
        encoder_ffn_dim=sizes["ffn_dim"],
        decoder_ffn_dim=sizes["ffn_dim"],
        max_position_embeddings=256,
        forced_eos_token_id=None,
    )
    module: torch.nn.Module = BartForConditionalGeneration(config)
    return module.to(device, torch.bfloat16).eval()


def _generate_seconds(
    model: BartForConditionalGeneration, shape: Shape, batch: int, is_compiled: bool
) -> float:
    source = torch.randint(3, shape.sizes["vocab_size"], (batch, shape.source), device=model.device)

    def generate() -> None:
        found = model.generate(
            source,
            attention_mask=torch.ones_like(source),
            do_sample=False,
            num_beams=1,
            min_new_tokens=shape.target,
            max_new_tokens=shape.target,
            cache_implementation="static",
            disable_compile=not is_compiled,
        )
        assert found.shape[1] == shape.target + 1, found.shape

    with torch.inference_mode():
        return seconds_of(generate, repeats=2)
