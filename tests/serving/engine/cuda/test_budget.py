"""As many rows as there is memory for, which is counted before any is asked for."""

from bisect import bisect_left
from dataclasses import replace

import pytest

from serving.bundle.manifest import Manifest
from serving.engine.config import EngineConfig
from serving.engine.cuda.memory import LEAST_RESERVE, DeviceBytes, bytes_of_row, rows_that_fit
from serving.engine.engine import Engine
from serving.errors import DeviceError
from tests.serving.engine.cuda.test_engine_on_a_device import CONFIG, Device
from tests.serving.engine.toy import toy_bundle


def rows_within(num_bytes: int, manifest: Manifest, config: EngineConfig) -> int:
    try:
        return rows_that_fit(manifest, config, DeviceBytes(LEAST_RESERVE + num_bytes, 2**40))
    except DeviceError:
        return 0


@pytest.mark.parametrize("slots", [1, 7, 64])
@pytest.mark.parametrize("has_encoder", [True, False])
def test_an_engine_takes_what_was_counted(has_encoder: bool, slots: int) -> None:
    """And not much less. Not counted is what the graphs read from the host: a few numbers a row."""
    config = replace(CONFIG, slots=slots, max_encode_tokens=128)
    manifest, device = toy_bundle(has_encoder).manifest, Device(has_encoder)
    manifest = replace(manifest, limits=replace(manifest.limits, max_target_tokens=500))
    sizes = range(2**22)
    least = bisect_left(sizes, slots, key=lambda size: rows_within(size, manifest, config))
    assert least < len(sizes) - 1
    Engine(replace(toy_bundle(), manifest=manifest), config, device.graphs).warm_up()
    assert 0.8 * least < device.library.num_used < least + 100 * (slots + 16)


def test_rows_are_those_of_the_share_or_of_what_is_free() -> None:
    manifest, config = toy_bundle().manifest, EngineConfig(encoder_cache_bytes=0)
    half, whole = DeviceBytes(2**33, 2**32), DeviceBytes(2**33, 2**33)
    assert rows_that_fit(manifest, config, half) < rows_that_fit(manifest, config, whole)
    assert rows_that_fit(manifest, config, half) * bytes_of_row(manifest) < 2**32 - LEAST_RESERVE
    assert rows_that_fit(manifest, config, DeviceBytes(2**32, 2**33)) == rows_that_fit(
        manifest, config, half
    )


def test_too_little_memory_for_a_row_is_one_clear_line() -> None:
    with pytest.raises(DeviceError, match="too little memory on the GPU: toy wants") as caught:
        rows_that_fit(toy_bundle().manifest, EngineConfig(), DeviceBytes(2**28, 2**28))
    assert "gpus_per_replica" in str(caught.value)
    assert "\n" not in str(caught.value)
