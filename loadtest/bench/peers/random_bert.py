"""Makes an embedder of any size to race with: BERT with random weights, in the formats of engines.

    PEERS/bin/python -m loadtest.bench.peers.random_bert CORPUS FOLDER [--d-model 384 ...]

How fast an engine is depends on shapes and lengths, not on what the weights say. As it comes it has
the shape of all-MiniLM-L6-v2. The tokenizer is trained on CORPUS: text, one sentence a line, or
tab-separated pairs of them, .gz too. Afterwards FOLDER holds

    hugging_face/    a Sentence Transformers folder for `attendant export`: mean pooling, length 1
    onnx/plain.onnx  the same as torch exports it, over padded batches with a mask
    onnx/fused.onnx  the same, its attention and norms fused by ONNX Runtime's own optimizer
    file.txt         1,000 sentences of CORPUS as they come

It runs where torch, transformers, tokenizers and onnxruntime are, and imports nothing of ours.
"""

import argparse
import gzip
import importlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NUM_IN_FILE = 1000
MODULES = ("Transformer", "Pooling", "Normalize")


def main() -> None:
    """Make the folder."""
    options = _options()
    folder: Path = options.folder
    model = folder / "hugging_face"
    (model / "1_Pooling").mkdir(parents=True, exist_ok=True)
    texts = [text for text in sentences(options.corpus) if text]
    write_tokenizer(texts, options.vocab_size, model)
    write_modules(options.d_model, model)
    bert = write_weights(options, model)
    write_graphs(bert, options, folder / "onnx")
    text = "\n".join(islice(texts, NUM_IN_FILE)) + "\n"
    (folder / "file.txt").write_text(text, encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.bench.peers.random_bert",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus", type=Path, help="Sentences: text or tab-separated, .gz too.")
    parser.add_argument("folder", type=Path, help="Where all goes.")
    parser.add_argument("--d-model", type=int, default=384)
    parser.add_argument("--ffn-dim", type=int, default=1536)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocab-size", type=int, default=30522)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def sentences(corpus: Path) -> Iterator[str]:
    """Yield the first text of each line; where there are three columns, the first is no text."""
    opened = gzip.open if corpus.suffix == ".gz" else open
    with opened(corpus, "rt", encoding="utf-8") as lines:
        for line in lines:
            cells = [cell.strip() for cell in line.rstrip("\n").split("\t")]
            yield cells[1] if len(cells) > 2 else cells[0]


def write_tokenizer(texts: list[str], vocab_size: int, model: Path) -> None:
    tokenizers = importlib.import_module("tokenizers")
    transformers = importlib.import_module("transformers")
    tokenizer = tokenizers.BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(
        texts, vocab_size, special_tokens=list(SPECIALS), show_progress=False
    )
    path = str(model / "tokenizer.json")
    tokenizer.save(path)
    fast = transformers.BertTokenizerFast(tokenizer_file=path, model_max_length=512)
    fast.save_pretrained(model)


def write_modules(d_model: int, model: Path) -> None:
    folders = ("", "1_Pooling", "2_Normalize")
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.{kind}"}
        for place, (path, kind) in enumerate(zip(folders, MODULES, strict=True))
    ]
    _write_json(model / "modules.json", modules)
    pooling = {"word_embedding_dimension": d_model, "pooling_mode_mean_tokens": True}
    _write_json(model / "1_Pooling" / "config.json", pooling)


def write_weights(options: argparse.Namespace, model: Path) -> Any:
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    torch.manual_seed(options.seed)
    config = transformers.BertConfig(
        vocab_size=options.vocab_size,
        hidden_size=options.d_model,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=options.ffn_dim,
        max_position_embeddings=512,
        attn_implementation="eager",  # whose operators the optimizer knows
    )
    bert = transformers.BertModel(config, add_pooling_layer=False).eval()
    bert.save_pretrained(model)
    return bert


def write_graphs(bert: Any, options: argparse.Namespace, folder: Path) -> None:
    """Export what reads `input_ids` and `attention_mask`, and gives `embedding`; then fuse it."""
    torch = importlib.import_module("torch")
    folder.mkdir(exist_ok=True)
    ids = torch.ones((2, 9), dtype=torch.int64)
    inputs = ["input_ids", "attention_mask"]
    torch.onnx.export(
        _pool(torch, bert),
        (ids, ids),
        str(folder / "plain.onnx"),
        input_names=inputs,
        output_names=["embedding"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in inputs}
        | {"embedding": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )
    optimizer = importlib.import_module("onnxruntime.transformers.optimizer")
    fused = optimizer.optimize_model(
        str(folder / "plain.onnx"), "bert", options.heads, options.d_model
    )
    fused.save_model_to_file(str(folder / "fused.onnx"))


def _pool(torch: Any, bert: Any) -> Any:
    """Make a module of the mean over real tokens, of length 1."""

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, ids: Any, mask: Any) -> Any:
            tokens = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask.unsqueeze(-1).to(tokens.dtype)
            mean = (tokens * weights).sum(1) / weights.sum(1)
            return torch.nn.functional.normalize(mean, dim=1)

    return Pooled()


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
