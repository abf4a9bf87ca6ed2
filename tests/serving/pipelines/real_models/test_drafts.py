"""A stop string within a draft ends the text where it ends without drafts."""

from pathlib import Path

import pytest

from serving.bundle.manifest import Precision
from serving.engine.config import EngineConfig
from serving.engine.decoding.speculative_decoding import Costs
from serving.pipelines.decoding import Decoding
from serving.pipelines.jobs import CompletionDelta, CompletionJob
from serving.pipelines.loading import open_model
from serving.requests.parameters import SamplingParams
from tests.tiny import tiny_bundle

PROMPT = "It is fast. A dog runs. It is fast. A dog "


async def test_stop_strings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tiny_bundle("llama", tmp_path, Precision.FP32, context_length=96)
    monkeypatch.setattr(
        Costs, "is_worthwhile", lambda self, num_rows, num_expected: num_expected > 0
    )

    async def complete(has_drafts: bool, *stop: str, seed: int = 0) -> list[CompletionDelta]:
        config = EngineConfig(slots=4, threads=1, speculation=has_drafts)
        sampling = SamplingParams(temperature=0.5, top_k=3, seed=seed)
        decoding = Decoding(sampling, max_new_tokens=40, ignore_eos=True)
        async with open_model(bundle, config) as catalog:
            model = await catalog.get_model(catalog.local_cards[0].name)
            job = CompletionJob("job", (PROMPT,), decoding, num_samples=3, stop=stop)
            return await model.run(job)

    whole = await complete(True)
    assert whole == await complete(False)
    stops = {delta.text[start : start + 2] for delta in whole for start in (5, 11, 30)}
    for stop in stops:
        assert await complete(True, stop) == await complete(False, stop)
