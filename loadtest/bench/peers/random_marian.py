"""Makes a model of any size to race with: random weights, in the formats of every engine.

    PEERS/bin/python -m loadtest.bench.peers.random_marian CORPUS FOLDER [--d-model 512 ...]

How fast an engine is depends on shapes and lengths, not on what the weights say; so weights are
random, and the token that ends a translation is suppressed: all engines generate equally many. The
tokenizer is trained on CORPUS: text, one sentence a line, or tab-separated pairs of them, .gz too.
Afterwards FOLDER holds

    hugging_face/    the model for `attendant export` and for transformers
    ctranslate2/     the same, converted by CTranslate2, where that is installed
    even.txt         256 sentences of CORPUS of 20 to 27 tokens
    file.txt         1,000 sentences of CORPUS as they come

It runs where torch, transformers and sentencepiece are, and imports nothing of ours.
"""

import argparse
import gzip
import importlib
import json
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

SPECIALS = {"unk": "<unk>", "eos": "</s>", "pad": "<pad>"}
EVEN_TOKENS = range(20, 28)
NUM_EVEN, NUM_IN_FILE = 256, 1000
NEVER = -1e4  # a bias no logit makes up for


def main() -> None:
    """Make the folder."""
    options = _options()
    folder: Path = options.folder
    model = folder / "hugging_face"
    model.mkdir(parents=True, exist_ok=True)
    pieces = train_tokenizer(options.corpus, folder, options.vocab_size)
    write_tokenizer(pieces, folder, model)
    write_weights(options, len(pieces), model)
    write_sentences(options.corpus, folder)
    convert_for_ctranslate2(model, folder / "ctranslate2")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.bench.peers.random_marian",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus", type=Path, help="Sentences: text or tab-separated, .gz too.")
    parser.add_argument("folder", type=Path, help="Where all goes.")
    parser.add_argument("--d-model", type=int, default=512)
    parser.add_argument("--ffn-dim", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=6, help="Of the encoder and of the decoder.")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocab-size", type=int, default=31999)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def columns(corpus: Path) -> Iterator[list[str]]:
    """Yield the columns of each line; where there are three, the first only names the source."""
    opened = gzip.open if corpus.suffix == ".gz" else open
    with opened(corpus, "rt", encoding="utf-8") as lines:
        for line in lines:
            cells = [cell.strip() for cell in line.rstrip("\n").split("\t")]
            yield cells[1:] if len(cells) > 2 else cells


def train_tokenizer(corpus: Path, folder: Path, vocab_size: int) -> list[str]:
    """Train one sentencepiece model for both sides; return its pieces, in the order of ids."""
    sentencepiece = importlib.import_module("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(cell for cells in columns(corpus) for cell in cells if cell),
        model_prefix=str(folder / "joint"),
        vocab_size=vocab_size - 1,  # and the padding
        character_coverage=0.9999,
        input_sentence_size=120_000,
        shuffle_input_sentence=True,
        hard_vocab_limit=False,
        minloglevel=2,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        pad_id=-1,
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "joint.model"))
    return [*map(processor.id_to_piece, range(len(processor))), SPECIALS["pad"]]


def write_tokenizer(pieces: list[str], folder: Path, model: Path) -> None:
    for side in ("source", "target"):
        shutil.copy(folder / "joint.model", model / f"{side}.spm")
    for file in folder.glob("joint.*"):
        file.unlink()
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    config = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": "en",
        "target_lang": "fr",
        "model_max_length": 512,
        **{f"{name}_token": token for name, token in SPECIALS.items()},
    }
    _write_json(model / "vocab.json", vocabulary)
    _write_json(model / "tokenizer_config.json", config)


def write_weights(options: argparse.Namespace, vocab_size: int, model: Path) -> None:
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    torch.manual_seed(options.seed)
    eos, pad = 0, vocab_size - 1
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in _side(options).items()
    }
    special_ids = {"pad_token_id": pad, "eos_token_id": eos, "decoder_start_token_id": pad}
    config = transformers.MarianConfig(
        vocab_size=vocab_size,
        d_model=options.d_model,
        max_position_embeddings=512,
        activation_function="swish",
        static_position_embeddings=True,
        scale_embedding=True,
        init_std=0.04,
        bos_token_id=eos,
        forced_eos_token_id=eos,
        **sides,
        **special_ids,
    )
    marian = transformers.MarianMTModel(config).eval()
    marian.final_logits_bias[0, [eos, pad]] = NEVER
    marian.generation_config = transformers.GenerationConfig(
        num_beams=1, max_length=512, bad_words_ids=[[pad]], **special_ids
    )
    marian.save_pretrained(model)


def _side(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "layers": options.layers,
        "attention_heads": options.heads,
        "ffn_dim": options.ffn_dim,
    }


def write_sentences(corpus: Path, folder: Path) -> None:
    sentencepiece = importlib.import_module("sentencepiece")
    spm = str(folder / "hugging_face" / "source.spm")
    processor = sentencepiece.SentencePieceProcessor(model_file=spm)
    sources = [cells[0] for cells in columns(corpus) if cells[0]]
    even = (text for text in sources if len(processor.encode(text)) in EVEN_TOKENS)
    for name, texts in (("even", islice(even, NUM_EVEN)), ("file", sources[:NUM_IN_FILE])):
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")


def convert_for_ctranslate2(model: Path, folder: Path) -> None:
    """Convert, with the tokenizers beside it, which the server over CTranslate2 needs."""
    try:
        converters = importlib.import_module("ctranslate2").converters
    except ImportError:
        print("CTranslate2 is not installed: no model for it")
        return
    files = ["source.spm", "target.spm"]
    converters.TransformersConverter(str(model), copy_files=files).convert(str(folder), force=True)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
