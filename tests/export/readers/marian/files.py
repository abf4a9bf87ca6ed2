"""Tiny Marian models with random weights, and writers of Marian's files.

Written after marian-dev's sources, as `export.readers.marian` was, but apart from it.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.export.readers.common.sentencepiece_models import trained

FLOAT32, INT8, INTGEMM8 = 0x404, 0x101, 0x4101
OPTIONS: dict[str, Any] = {
    "type": "transformer",
    "dim-emb": 32,
    "enc-depth": 2,
    "dec-depth": 2,
    "transformer-heads": 4,
    "transformer-dim-ffn": 48,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "relu",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "rnn",
    "transformer-train-position-embeddings": False,
    "dec-cell": "ssru",
    "tied-embeddings": False,
    "tied-embeddings-src": False,
    "tied-embeddings-all": True,
    "output-omit-bias": False,
    "version": "v1.9.56",
}
NUM_PIECES = 400
Arrays = dict[str, np.ndarray]


def vocabulary() -> bytes:
    """A sentencepiece model as Marian trains them: </s> is 0, <unk> is 1."""
    special = {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1}
    return trained(vocab_size=NUM_PIECES, **special)


def random_weights(options: Mapping[str, Any], num_source: int, num_target: int) -> Arrays:
    """Draw those of a model of these options; half of its biases and norms would do nothing if left
    out.
    """
    return _Weights(options).all(num_source, num_target)


class _Weights:
    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options, self.arrays = options, Arrays()
        self.random = np.random.default_rng(0)
        self.dim, self.ffn = options["dim-emb"], options["transformer-dim-ffn"]
        self.is_pre = options["transformer-preprocess"] == "n"

    def all(self, num_source: int, num_target: int) -> Arrays:
        self.add_embeddings(num_source, num_target)
        for stack, short in (("encoder", "enc"), ("decoder", "dec")):
            for name, option in (("top_ln", "top"), ("emb_ln", "emb")):
                if "n" in self.options[f"transformer-postprocess-{option}"]:
                    self.add_norm(f"{stack}_{name}", "_pre" if option == "emb" else "")
            for layer in range(1, self.options[f"{short}-depth"] + 1):
                self.add_layer(stack, f"{stack}_l{layer}")
        return self.arrays

    def add_layer(self, stack: str, name: str) -> None:
        if stack == "decoder" and self.options["transformer-decoder-autoreg"] == "rnn":
            self.add(f"{name}_rnn_W", self.dim, self.dim)
            self.add(f"{name}_rnn_Wf", self.dim, self.dim)
            self.add(f"{name}_rnn_bf", 1, self.dim)
            self.add_sublayer_norm(f"{name}_rnn", "_ffn")
        else:
            self.add_attention(f"{name}_self")
        if stack == "decoder":
            self.add_attention(f"{name}_context")
        self.add(f"{name}_ffn_W1", self.dim, self.ffn)
        self.add(f"{name}_ffn_b1", 1, self.ffn)
        self.add(f"{name}_ffn_W2", self.ffn, self.dim)
        self.add(f"{name}_ffn_b2", 1, self.dim)
        self.add_sublayer_norm(f"{name}_ffn", "_ffn", both=True)

    def add_attention(self, name: str) -> None:
        for letter in "qkvo":
            self.add(f"{name}_W{letter}", self.dim, self.dim)
            self.add(f"{name}_b{letter}", 1, self.dim)
        self.add_sublayer_norm(f"{name}_Wo", "")

    def add_sublayer_norm(self, name: str, post: str, *, both: bool = False) -> None:
        """The suffix `post` stands in names of norms after a sublayer, or in `both`."""
        if self.is_pre:
            self.add_norm(f"{name}{post if both else ''}_ln", "_pre")
        else:
            self.add_norm(f"{name}{post}_ln", "")

    def add_norm(self, name: str, suffix: str) -> None:
        self.add(f"{name}_scale{suffix}", 1, self.dim)
        self.arrays[f"{name}_scale{suffix}"] += 1
        self.add(f"{name}_bias{suffix}", 1, self.dim)

    def add_embeddings(self, num_source: int, num_target: int) -> None:
        options = self.options
        if options["tied-embeddings-all"] or options["tied-embeddings-src"]:
            self.add("Wemb", num_target, self.dim)
        else:
            self.add("encoder_Wemb", num_source, self.dim)
            self.add("decoder_Wemb", num_target, self.dim)
        if not (options["tied-embeddings-all"] or options["tied-embeddings"]):
            self.add("decoder_ff_logit_out_W", self.dim, num_target)
        if not options["output-omit-bias"]:
            self.add("decoder_ff_logit_out_b", 1, num_target)
        if options["transformer-train-position-embeddings"]:
            self.add("Wpos", 7, self.dim)

    def add(self, name: str, rows: int, columns: int) -> None:
        spread = 0.3 if rows == 1 else 1.5 / np.sqrt(columns if "emb" in name else rows)
        values = self.random.standard_normal((rows, columns)) * spread
        self.arrays[name] = values.astype(np.float32)


def write_npz(path: Path, arrays: Arrays, options: Mapping[str, Any]) -> None:
    """As numpy does; vectors with one axis only, as older versions of Marian have them."""
    text = np.frombuffer(yaml.safe_dump(dict(options)).encode() + b"\0", np.int8)
    vectors = {name: w[0] for name, w in arrays.items() if len(w) == 1 and "decoder" in name}
    np.savez(path, **arrays | vectors | {"special:model.yml": text})


def quantised(arrays: Arrays) -> tuple[Arrays, dict[str, float]]:
    """int8 levels of every matrix but the positions, and its multiplier."""
    matrices = {name: w for name, w in arrays.items() if len(w) > 1 and name != "Wpos"}
    multipliers = {name: float(np.float32(127 / abs(w).max())) for name, w in matrices.items()}
    levels = {name: np.rint(w * multipliers[name]) for name, w in matrices.items()}
    return {name: each.astype(np.int8) for name, each in levels.items()}, multipliers


def write_binary(
    path: Path, arrays: Arrays, options: Mapping[str, Any], alphas: Mapping[str, float] | None
) -> None:
    """Marian's binary format. With `alphas`, multipliers of inputs by the weight's name, matrices
    are stored in int8.
    """
    levels, multipliers = quantised(arrays) if alphas is not None else ({}, {})
    items = [
        (name, INTGEMM8, w.shape, _intgemm(name, levels[name], multipliers[name]))
        if name in levels
        else (name, FLOAT32, w.shape, w.tobytes())
        for name, w in arrays.items()
    ]
    for name, alpha in (alphas or {}).items():
        items.append((f"{name}_QuantMultA", FLOAT32, (1, 1), struct.pack("<f", alpha)))
    text = yaml.safe_dump(dict(options)).encode() + b"\0"
    items.append(("special:model.yml", INT8, (len(text),), text))
    path.write_bytes(binary(items))


def _intgemm(name: str, levels: np.ndarray, multiplier: float) -> bytes:
    lying = levels if "Wemb" in name else levels.T
    return np.ascontiguousarray(lying).tobytes() + struct.pack("<f", multiplier)


def binary(items: Sequence[tuple[str, int, Sequence[int], bytes]]) -> bytes:
    """Items are name, type, shape and data, which is filled up to 256 bytes."""
    data = [each + b"\0" * (-len(each) % 256) for *_, each in items]
    text = struct.pack("<QQ", 1, len(items))
    for (name, kind, shape, _), each in zip(items, data, strict=True):
        text += struct.pack("<QQQQ", len(name.encode()) + 1, kind, len(shape), len(each))
    text += b"".join(name.encode() + b"\0" for name, *_ in items)
    text += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    gap = -(len(text) + 8) % 256
    return text + struct.pack("<Q", gap) + b"\0" * gap + b"".join(data)


def write_shortlist(path: Path, num_first: int, lists: Sequence[Sequence[int]]) -> None:
    """lists: of each source token its candidates."""
    path.write_bytes(shortlist(num_first, lists))


def shortlist(num_first: int, lists: Sequence[Sequence[int]]) -> bytes:
    offsets = np.cumsum([0, *map(len, lists)]).astype("<u8")
    candidates = np.array([i for each in lists for i in each], "<u4")
    body = struct.pack("<QQQQ", num_first, 9, len(offsets), len(candidates))
    body += offsets.tobytes() + candidates.tobytes()
    return struct.pack("<QQ", 0xF11A48D5013417F5, checksum(body)) + body


def checksum(body: bytes) -> int:
    seed = 0
    for i in range(0, len(body) - 7, 8):
        (word,) = struct.unpack_from("<Q", body, i)
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) % 2**64
    return seed


def some_shortlist(num_source: int, num_target: int) -> list[list[int]]:
    random = np.random.default_rng(1)
    return [
        sorted(random.choice(num_target, random.integers(0, 12), replace=False).tolist())
        for _ in range(num_source)
    ]


def bergamot_folder(
    folder: Path, *, alphas: float | None = 12.0, config: bool = True, **changes: Any
) -> Arrays:
    """A folder as Bergamot's, with a shortlist; the weights it was made from."""
    options = OPTIONS | changes
    arrays = random_weights(options, NUM_PIECES, NUM_PIECES)
    matrices, _ = quantised(arrays)
    names = ["none" if name == "Wemb" else name for name in matrices]
    found = dict.fromkeys(names, alphas) if alphas else {}
    folder.mkdir(parents=True, exist_ok=True)
    write_binary(folder / "model.enpt.intgemm.alphas.bin", arrays, options, found)
    (folder / "vocab.enpt.spm").write_bytes(vocabulary())
    lists = some_shortlist(NUM_PIECES, NUM_PIECES)
    write_shortlist(folder / "lex.30.30.enpt.s2t.bin", 30, lists)
    if config:
        (folder / "config.intgemm8bitalpha.yml").write_text(CONFIGURATION)
    return arrays


CONFIGURATION = """relative-paths: true
models:
  - model.enpt.intgemm.alphas.bin
vocabs:
  - vocab.enpt.spm
  - vocab.enpt.spm
shortlist:
    - lex.30.30.enpt.s2t.bin
    - false
beam-size: 1
normalize: 1.0
max-length-factor: 2.5
"""
