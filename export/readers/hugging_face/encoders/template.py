"""Finds the special tokens around a text, and between the texts of a pair."""

import json
from dataclasses import dataclass

from tokenizers import Tokenizer, decoders, normalizers

from export.readers.hugging_face.encoders.families import EncoderFamily
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.tokenizers import encode, token_ids

MARKS = (("cls_token", "[CLS]", "<s>"), ("sep_token", "[SEP]", "</s>"))  # with usual names


@dataclass(frozen=True)
class Template:
    """Says prefix + text + suffix, or prefix + text + separator + text + suffix."""

    prefix: tuple[int, ...] = ()
    separator: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()


def read_template(folder: Folder, family: EncoderFamily) -> Template:
    """Read it off what the tokenizer does with a pair; one that adds nothing, of older files, gets
    what its family has.
    """
    if folder.tokenizers is None:
        return Template()
    source = folder.tokenizers.source
    encoding = encode(source, "a", folder.problems, is_bare=False, pair="a")
    texts = [place for place, text in enumerate(encoding.sequence_ids) if text is not None]
    if not texts:
        return Template()
    if {0, 1} - {*encoding.sequence_ids}:
        folder.problems.append("tokenizer.json has no place for one of the two texts of a pair")
        return Template()
    second = encoding.sequence_ids.index(1)
    end = max(place for place, text in enumerate(encoding.sequence_ids) if text == 0) + 1
    if len(texts) < len(encoding.ids):
        ids = tuple(encoding.ids)
        return Template(ids[: texts[0]], ids[end:second], ids[texts[-1] + 1 :])
    known = token_ids(source)
    cls, sep = (_mark(folder, names, known) for names in MARKS)
    return Template((cls,), (sep,) * family.num_separators, (sep,))


def _mark(folder: Folder, names: tuple[str, ...], known: dict[str, int]) -> int:
    """Find the id of a special token, which `tokenizer_config.json` may call by another name."""
    role, *usual = names
    told = folder.tokenizer.get(role)
    wanted = [told.get("content") if isinstance(told, dict) else told, *usual]
    found = [known[name] for name in wanted if name in known]
    if not found:
        folder.problems.append(f"tokenizer: there is no {role}")
    return found[0] if found else 0


def only_reading(tokenizer_json: bytes, *, lowercases: bool) -> bytes:
    """Leave away what cuts, pads and tidies up text that is written; nothing is. lowercases: all
    letters become small before anything else is done.
    """
    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if isinstance(tokenizer.decoder, decoders.WordPiece):
        tokenizer.decoder = decoders.WordPiece(cleanup=False)
    is_lower = '"lowercase": true' in json.dumps(json.loads(tokenizer_json).get("normalizer"))
    if lowercases and not is_lower:
        after = [tokenizer.normalizer] if tokenizer.normalizer is not None else []
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *after])
    return tokenizer.to_str().encode()
