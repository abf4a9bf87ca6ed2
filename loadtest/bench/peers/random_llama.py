"""Write a Llama of any size with random weights as a GGUF file, for comparisons with llama.cpp.

    PEERS/bin/python -m loadtest.bench.peers.random_llama CORPUS FILE.gguf [--kind Q4_0 ...]

How fast an engine is depends on shapes and lengths, not on what the weights say. Weights are drawn
so that activations keep their size from layer to layer, and greedy output varies. Tokens that end
a text, or are no whole character, have zeros in the output matrix and are never the likeliest: all
engines generate equally many tokens, and send each at once. The tokenizer is byte-level BPE,
trained on CORPUS: text files, .gz too.

FILE.gguf is for llama.cpp, and for `attendant export`. It is written tensor by tensor: memory is
needed for the largest one. The module runs where gguf and tokenizers are installed.
"""

import argparse
import gzip
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SPECIAL = ("<unk>", "<s>", "</s>")
KINDS = ("Q4_0", "Q8_0", "F16")
NORMAL, UNKNOWN, CONTROL = 1, 2, 3  # of tokens, in llama.cpp
LOGIT_SCALE = 3.0  # the standard deviation of logits, as wide as those of a trained model


def main() -> None:
    """Write the file."""
    options = _options()
    gguf = importlib.import_module("gguf")
    writer = gguf.GGUFWriter(options.file, "llama")
    add_shape(writer, options, gguf.LlamaFileType[f"MOSTLY_{options.kind}"])
    tokens, merges = train_tokenizer(options.corpus, options.vocab_size)
    add_tokenizer(writer, tokens, merges)
    write_tensors(gguf, writer, options, tokens)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.bench.peers.random_llama",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus", type=Path, nargs="+", help="Text files, .gz too.")
    parser.add_argument("file", type=Path, help="The GGUF file to write.")
    parser.add_argument("--kind", choices=KINDS, default="Q4_0", help="Type of the matrices.")
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--d-model", type=int, default=2048)
    parser.add_argument("--ffn-dim", type=int, default=5632)
    parser.add_argument("--heads", type=int, default=32, help="Of queries.")
    parser.add_argument("--kv-heads", type=int, default=4, help="Of keys and values.")
    parser.add_argument("--vocab-size", type=int, default=32000)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def add_shape(writer: Any, options: argparse.Namespace, file_type: Any) -> None:
    writer.add_name(options.file.stem)
    writer.add_file_type(file_type)
    writer.add_context_length(options.context)
    writer.add_embedding_length(options.d_model)
    writer.add_block_count(options.layers)
    writer.add_feed_forward_length(options.ffn_dim)
    writer.add_head_count(options.heads)
    writer.add_head_count_kv(options.kv_heads)
    writer.add_rope_dimension_count(options.d_model // options.heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(options.vocab_size)


def train_tokenizer(corpus: list[Path], vocab_size: int) -> tuple[list[str], list[str]]:
    """Train byte-level BPE; return its tokens in the order of ids, and its merges as "a b"."""
    tokenizers = importlib.import_module("tokenizers")
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = byte_level(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(byte_level.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_lines(corpus), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    if len(model["vocab"]) < vocab_size:
        count = len(model["vocab"])
        raise SystemExit(f"the corpus has text for {count} tokens: give more, or --vocab-size")
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return tokens, merges


def _lines(corpus: list[Path]) -> Iterator[str]:
    for path in corpus:
        open_file = gzip.open if path.suffix == ".gz" else open
        with open_file(path, "rt", encoding="utf-8") as lines:
            yield from lines


def add_tokenizer(writer: Any, tokens: list[str], merges: list[str]) -> None:
    kinds = [NORMAL] * len(tokens)
    kinds[: len(SPECIAL)] = UNKNOWN, CONTROL, CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(SPECIAL.index("<s>"))
    writer.add_eos_token_id(SPECIAL.index("</s>"))
    writer.add_add_bos_token(False)  # a prompt has as many tokens as its text


def write_tensors(gguf: Any, writer: Any, options: argparse.Namespace, tokens: list[str]) -> None:
    """Draw, quantise and write one tensor after another.

    A Q4_0 file has its output matrix in Q8_0, as llama.cpp's own quantiser gives that matrix more
    bits than the layers.
    """
    kind = gguf.GGMLQuantizationType[options.kind]
    output_kind = gguf.GGMLQuantizationType.Q8_0 if options.kind == "Q4_0" else kind
    norm_kind = gguf.GGMLQuantizationType.F32
    shapes = tensor_shapes(options)
    kinds = {name: kind if len(shape) > 1 else norm_kind for name, shape in shapes.items()}
    kinds["output.weight"] = output_kind
    for name, shape in shapes.items():
        stored = shape if len(shape) == 1 else gguf.quant_shape_to_byte_shape(shape, kinds[name])
        size = int(np.prod(stored)) * (4 if len(shape) == 1 else 1)
        dtype = np.dtype(np.float32 if len(shape) == 1 else np.uint8)
        writer.add_tensor_info(name, stored, dtype, size, kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(options.seed)
    for name, shape in shapes.items():
        weight = draw(name, shape, options.layers, random)
        if name == "output.weight":
            weight[[not is_whole_text(token) for token in tokens]] = 0
        writer.write_tensor_data(gguf.quants.quantize(weight, kinds[name]))
    writer.close()


def tensor_shapes(options: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """Return the shapes in the order of the file: rows of a matrix are outputs."""
    width, inner = options.d_model, options.ffn_dim
    kv_width = width // options.heads * options.kv_heads
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (width,),
        "attn_q": (width, width),
        "attn_k": (kv_width, width),
        "attn_v": (kv_width, width),
        "attn_output": (width, width),
        "ffn_norm": (width,),
        "ffn_gate": (inner, width),
        "ffn_up": (inner, width),
        "ffn_down": (width, inner),
    }
    layers = {
        f"blk.{number}.{name}.weight": shape
        for number in range(options.layers)
        for name, shape in layer.items()
    }
    table = (options.vocab_size, width)
    return {
        "token_embd.weight": table,
        **layers,
        "output_norm.weight": (width,),
        "output.weight": table,
    }


def draw(name: str, shape: tuple[int, ...], num_layers: int, random: Any) -> Any:
    """Draw weights that keep the variance of activations; what is added to the residual stream is
    smaller, the more layers there are.
    """
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    weight = random.standard_normal(shape, np.float32)
    if name == "token_embd.weight":
        return weight
    scale = 1 / np.sqrt(shape[1])
    if name == "output.weight":
        scale *= LOGIT_SCALE
    elif name.endswith(("attn_output.weight", "ffn_down.weight")):
        scale /= np.sqrt(2 * num_layers)
    weight *= np.float32(scale)
    return weight


def is_whole_text(token: str) -> bool:
    """Return whether the bytes of a token of byte-level BPE are whole characters of UTF-8."""
    if token in SPECIAL:
        return False
    try:
        bytes(BYTES[character] for character in token).decode()
    except UnicodeDecodeError:
        return False
    return True


def _bytes_of_characters() -> dict[str, int]:
    """Return the byte of each character that GPT-2's vocabulary writes bytes with."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    characters = [*printable, *range(256, 256 + len(rest))]
    return {chr(code): byte for code, byte in zip(characters, printable + rest, strict=True)}


BYTES = _bytes_of_characters()


if __name__ == "__main__":
    main()
