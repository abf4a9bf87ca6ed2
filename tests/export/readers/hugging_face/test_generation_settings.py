"""What becomes of every field of transformers' `GenerationConfig`: a table, for both of the files
that may hold them.
"""

from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from export.readers.hugging_face.families import read_checkpoint
from models.checkpoint import Checkpoint
from tests.export.readers.hugging_face.changing import change, problems_of
from tests.export.readers.hugging_face.language_models import EOS, SIZES, random_model, save


class Fate(StrEnum):
    USED = "it is in the bundle"
    WITHOUT_EFFECT = "it changes no text, and nothing is said about it"
    NAMED = "it is not used, as a note says"
    REFUSED = "the model is refused, and the field named"


CONTEXT = SIZES["max_position_embeddings"]
# A value that is not the default, and what becomes of it.
FIELDS: dict[str, tuple[Any, Fate]] = {
    "assistant_confidence_threshold": (0.4, Fate.WITHOUT_EFFECT),
    "assistant_early_exit": (2, Fate.WITHOUT_EFFECT),
    "assistant_ensemble_weight": (0.5, Fate.WITHOUT_EFFECT),
    "assistant_lookbehind": (10, Fate.WITHOUT_EFFECT),
    "bad_words_ids": ([[5], [6, 7]], Fate.USED),
    "begin_suppress_tokens": ([5, 6], Fate.USED),
    "bos_token_id": (1, Fate.WITHOUT_EFFECT),
    "cache_config": ({"a": 1}, Fate.WITHOUT_EFFECT),
    "cache_implementation": ("static", Fate.WITHOUT_EFFECT),
    "compile_config": ({}, Fate.WITHOUT_EFFECT),
    "constraints": ([["a"]], Fate.REFUSED),
    "continuous_batching_config": ({}, Fate.WITHOUT_EFFECT),
    "decoder_start_token_id": (1, Fate.WITHOUT_EFFECT),  # of a model without a source
    "disable_compile": (True, Fate.WITHOUT_EFFECT),
    "diversity_penalty": (0.5, Fate.WITHOUT_EFFECT),  # without groups of beams
    "do_sample": (True, Fate.USED),
    "dola_layers": ("low", Fate.REFUSED),
    "early_stopping": (True, Fate.USED),
    "encoder_no_repeat_ngram_size": (3, Fate.USED),
    "encoder_repetition_penalty": (1.2, Fate.USED),
    "eos_token_id": ([EOS, 9], Fate.USED),
    "epsilon_cutoff": (0.001, Fate.NAMED),
    "eta_cutoff": (0.001, Fate.NAMED),
    "exponential_decay_length_penalty": ([10, 1.1], Fate.USED),
    "force_words_ids": ([[[5]]], Fate.REFUSED),
    "forced_bos_token_id": (5, Fate.REFUSED),
    "forced_eos_token_id": (EOS, Fate.USED),
    "guidance_scale": (1.5, Fate.REFUSED),
    "is_assistant": (True, Fate.WITHOUT_EFFECT),
    "length_penalty": (0.6, Fate.USED),
    "low_memory": (True, Fate.WITHOUT_EFFECT),
    "max_cache_len": (99, Fate.WITHOUT_EFFECT),
    "max_length": (CONTEXT - 1, Fate.NAMED),  # it counts the prompt
    "max_matching_ngram_size": (2, Fate.WITHOUT_EFFECT),
    "max_new_tokens": (9, Fate.USED),
    "max_time": (5.0, Fate.NAMED),
    "min_length": (5, Fate.NAMED),  # it counts the prompt
    "min_new_tokens": (2, Fate.USED),
    "min_p": (0.1, Fate.USED),
    "no_repeat_ngram_size": (3, Fate.USED),
    "num_assistant_tokens": (5, Fate.WITHOUT_EFFECT),
    "num_assistant_tokens_schedule": ("constant", Fate.WITHOUT_EFFECT),
    "num_beam_groups": (2, Fate.REFUSED),
    "num_beams": (4, Fate.USED),
    "num_return_sequences": (2, Fate.NAMED),
    "output_attentions": (True, Fate.WITHOUT_EFFECT),
    "output_hidden_states": (True, Fate.WITHOUT_EFFECT),
    "output_logits": (True, Fate.WITHOUT_EFFECT),
    "output_scores": (True, Fate.WITHOUT_EFFECT),
    "pad_token_id": (2, Fate.WITHOUT_EFFECT),
    "penalty_alpha": (0.6, Fate.REFUSED),
    "prefill_chunk_size": (4, Fate.WITHOUT_EFFECT),
    "prompt_lookup_num_tokens": (3, Fate.WITHOUT_EFFECT),
    "remove_invalid_values": (True, Fate.WITHOUT_EFFECT),
    "renormalize_logits": (True, Fate.USED),
    "repetition_penalty": (1.1, Fate.USED),
    "return_dict_in_generate": (True, Fate.WITHOUT_EFFECT),
    "sequence_bias": ([[[5], -1.0]], Fate.REFUSED),
    "speculation_type": ("dflash", Fate.WITHOUT_EFFECT),
    "stop_strings": (["end"], Fate.REFUSED),
    "suppress_tokens": ([5, 6], Fate.USED),
    "target_lookbehind": (10, Fate.WITHOUT_EFFECT),
    "temperature": (0.7, Fate.USED),
    "token_healing": (True, Fate.REFUSED),
    "top_h": (0.4, Fate.REFUSED),
    "top_k": (5, Fate.USED),
    "top_p": (0.9, Fate.USED),
    "transformers_version": ("4.0.0", Fate.WITHOUT_EFFECT),
    "typical_p": (0.9, Fate.USED),
    "use_cache": (False, Fate.WITHOUT_EFFECT),
    "use_mtp": (True, Fate.WITHOUT_EFFECT),
    "watermarking_config": ({"bias": 2.0}, Fate.REFUSED),
}
NEUTRAL: dict[str, list[Any]] = {  # values that ask for nothing
    "bad_words_ids": [[]],
    "begin_suppress_tokens": [[], [-1]],
    "constraints": [[]],
    "diversity_penalty": [0.0],
    "encoder_no_repeat_ngram_size": [0],
    "encoder_repetition_penalty": [1, 1.0],
    "force_words_ids": [[]],
    "guidance_scale": [1.0],
    "max_length": [CONTEXT, CONTEXT + 9],
    "min_length": [0],
    "num_beam_groups": [1],
    "num_return_sequences": [1],
    "penalty_alpha": [0.0],
    "renormalize_logits": [False],
    "sequence_bias": [{}, []],
    "stop_strings": [[]],
    "suppress_tokens": [[], [-1, 99_999]],
    "token_healing": [False],
}


def test_every_field_is_here() -> None:
    fields = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    assert fields - FIELDS.keys() == set()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(random_model("smollm2"), tmp_path_factory.mktemp("folder"))


def held(folder: Path, is_old: bool, **settings: Any) -> Path:
    """Write settings into the file that has them; older folders have only one."""
    generation = folder / "generation_config.json"
    generation.unlink(missing_ok=True)
    if not is_old:
        generation.write_text('{"eos_token_id": 2}')
    file = folder / "config.json" if is_old else generation
    change(file, **settings)
    return file


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("name", FIELDS)
def test_each_field_has_its_fate(name: str, is_old: bool, folder: Path) -> None:
    value, fate = FIELDS[name]
    if is_old and name == "max_length":  # 20 in every old file, whatever the model
        fate = Fate.WITHOUT_EFFECT
    sampling = {"temperature", "top_k", "top_p", "min_p", "typical_p"}
    settings = {"do_sample": True} if name in {*sampling, "epsilon_cutoff", "eta_cutoff"} else {}
    held(folder, is_old, **settings)
    before = told(read_checkpoint(folder))
    before_change = (folder / "config.json").read_bytes()
    held(folder, is_old, **settings, **{name: value})
    if fate is Fate.REFUSED:
        assert name in "; ".join(problems_of(folder))
    else:
        found = read_checkpoint(folder)
        assert (told(found) != before) == (fate is Fate.USED)
        assert (name in "; ".join(found.notes)) == (fate is Fate.NAMED)
    (folder / "config.json").write_bytes(before_change)


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("name", NEUTRAL)
def test_what_asks_for_nothing_changes_nothing(name: str, is_old: bool, folder: Path) -> None:
    held(folder, is_old)
    before, before_change = told(read_checkpoint(folder)), (folder / "config.json").read_bytes()
    for value in [None, *NEUTRAL[name]]:
        held(folder, is_old, **{name: value})
        found = read_checkpoint(folder)
        assert told(found) == before and found.notes == ()
    (folder / "config.json").write_bytes(before_change)


def told(checkpoint: Checkpoint) -> tuple[Any, ...]:
    conventions = checkpoint.conventions
    generation, processors = dict(conventions.generation), dict(conventions.logits_processors)
    return conventions.stop, conventions.forced_eos, generation, processors
