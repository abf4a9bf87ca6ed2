"""Translates texts with the plain torch loops: greedy in batches, by beams one by one."""

from tokenizers import Tokenizer
from tqdm import tqdm

from models.contract import Translator
from models.data.tokenizer import encode_all
from models.decoding.beam_search import BeamRules, beam_search
from models.decoding.greedy import translate_all


def translate(model: Translator, tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    """Translate each text greedily, in order."""
    sources = encode_all(tokenizer, texts)
    rows = translate_all(model, sources, model.config.max_target_tokens - 1, batch_size=64)
    return tokenizer.decode_batch(rows)


def translate_by_beams(
    model: Translator, tokenizer: Tokenizer, texts: list[str], num_beams: int
) -> list[str]:
    """Find the best hypothesis for each text, in order."""
    config = model.config
    rules = BeamRules(num_beams, config.max_target_tokens - 1)
    sources = [ids[: config.max_source_tokens - 1] for ids in encode_all(tokenizer, texts)]
    bar = tqdm(sources, desc="beam search", unit="text", leave=False, disable=None)
    return tokenizer.decode_batch([beam_search(model, ids, [], rules)[0].token_ids for ids in bar])
