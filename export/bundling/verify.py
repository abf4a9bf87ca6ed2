"""Compares a bundle with the torch module it came from. The only part of export that needs torch.

Teacher forcing gives both the same ids and compares every log-probability; greedy decoding runs
the engine on one side and the plain torch loop on the other.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from export.bundling.parity import (
    LogpError,
    Parity,
    TestScores,
    TextAgreement,
    VectorError,
    VectorParity,
)
from export.bundling.running import TEXTS_AT_ONCE, GraphRows, Ids, Sources, TextGraph, encoder_input
from export.graph.writer import Array
from models.checkpoint import Checkpoint
from models.configs.base import EncoderConfig, MaskedWordHead
from models.data.corpus import read_text
from models.data.tokenizer import encode_all, read_tokenizer
from models.decoding import (
    continue_batch,
    teacher_forced_log_probabilities,
    translate_all,
    vectors_of,
)
from models.errors import InputError
from models.loading import load_encoder, load_module
from models.scores import add_special_tokens
from serving.bundle.manifest import TOP_IDS, TOP_LOGP, Manifest, Task, Tokens
from serving.bundle.opening import Bundle
from serving.requests.request import Audio, GenerationRequest, Picture
from serving.text.shortlist import Shortlist

if TYPE_CHECKING:
    from models.scores import TestResult

ROWS = 16  # compared side by side
FORCED_TEXTS = 64  # of the test text; every position costs a whole vocabulary of comparisons
RANDOM_LENGTH = 24  # tokens of a random text, as of a sentence
PROMPT_LENGTH = 32  # of a language model's test prompts
NEW_TOKENS = 64  # of their continuations
MASKED = 7  # one token of so many is masked, the first one among them
Row = TypeVar("Row")


class Differences:
    """A sum of differences of log-probabilities between torch and bundle, over texts."""

    def __init__(self) -> None:
        self._largest = self._sum = 0.0
        self._num_values = self._num_positions = self._num_predicted = 0
        self._nats = np.zeros(2)
        self._largest_own = self._sum_own = 0.0

    def add(self, theirs: Array, ours: Array, target: list[int]) -> None:
        """Log-probabilities [target, vocab] after each id of ``target``, of torch and bundle."""
        difference = np.abs(theirs - ours)
        self._largest = max(self._largest, float(difference.max()))
        self._sum += float(difference.sum(dtype=np.float64))
        self._num_values += difference.size
        self._num_positions += len(target)
        predicted = np.arange(len(target) - 1), np.array(target[1:], np.int64)
        self._nats -= [side[predicted].sum(dtype=np.float64) for side in (theirs, ours)]
        self._num_predicted += len(target) - 1
        of_target = difference[predicted]
        self._largest_own = max(self._largest_own, float(of_target.max(initial=0)))
        self._sum_own += float(of_target.sum(dtype=np.float64))

    @property
    def error(self) -> LogpError:
        return LogpError(self._largest, self._sum / self._num_values, self._num_positions)

    @property
    def own_error(self) -> LogpError:
        """Return the error at the tokens with which the texts continue: the error of scores and
        `logprobs`.
        """
        mean = self._sum_own / max(self._num_predicted, 1)
        return LogpError(self._largest_own, mean, self._num_predicted)

    @property
    def perplexity(self) -> TestScores:
        before, after = np.exp(self._nats / self._num_predicted)
        return TestScores("perplexity", float(before), float(after))


class TranslationVerifier:
    def __init__(self, checkpoint: Checkpoint, bundle: Bundle) -> None:
        self._config, self._bundle = checkpoint.config, bundle
        self._limits = bundle.manifest.limits
        self._module = load_module(checkpoint)
        self._around = _special_tokens(bundle.manifest)
        self._source_tokenizer = read_tokenizer(checkpoint.tokenizer)
        self._target_tokenizer = read_tokenizer(checkpoint.target_tokenizer)

    def compare(self, test_file: Path | None, num_texts: int) -> Parity:
        """Compare on random ids, and on texts evenly spread over ``test_file`` if there is one:
        sentence pairs, or prose for a language model. Raises InputError if the file holds none.
        """
        random_ids = self._on_random_ids()
        if test_file is None:
            return Parity(random_ids)
        if self._bundle.manifest.picture is not None:
            raise InputError(f"{test_file}: a model that reads pictures is not compared on texts")
        if self._bundle.manifest.audio is not None:
            raise InputError(f"{test_file}: a model that reads sound is not compared on texts")
        if self._bundle.manifest.task is Task.TRANSLATE:
            return self._on_pairs(test_file, num_texts, random_ids)
        return self._on_prose(test_file, num_texts, random_ids)

    def _on_random_ids(self) -> LogpError:
        random = np.random.default_rng(0)
        limit = min(RANDOM_LENGTH, self._limits.max_target_tokens)
        special = (self._config.pad_id, self._config.bos_id, self._config.eos_id)
        size = self._config.vocab_size

        def draw(length: int, vocab_size: int) -> list[int]:
            ids = random.integers(0, vocab_size, length)
            return ids[~np.isin(ids, special)].tolist()

        sources: Sources
        if self._bundle.manifest.picture is not None:
            sources = random_pictures(self._bundle.manifest, ROWS)
        elif self._bundle.manifest.audio is not None:
            sources = random_sounds(self._bundle.manifest, ROWS)
        else:
            source_size = getattr(self._config, "source_vocab_size", None) or size
            lengths = random.integers(1, limit, ROWS).tolist()
            sources = [self._source(draw(length, source_size)) for length in lengths]
        return self._force(sources, [self._target(draw(limit, size)) for _ in sources]).error

    def _on_pairs(self, path: Path, num_texts: int, random_ids: LogpError) -> Parity:
        from export.bundling.decoding import decode  # the engine: only texts are decoded
        from models.data.corpus import read_pairs
        from models.scores import score

        pairs = _spread(read_pairs(path), num_texts, path)
        sources, targets = ([p.source for p in pairs], [p.target for p in pairs])
        source_ids = encode_all(self._source_tokenizer, sources)
        target_ids = encode_all(self._target_tokenizer, targets)
        differences = self._force(
            [self._source(ids) for ids in _spread(source_ids, FORCED_TEXTS, path)],
            [self._target(ids) for ids in _spread(target_ids, FORCED_TEXTS, path)],
        )
        prefix = self._around.prompt_prefix
        num_new = self._limits.max_target_tokens - len(prefix)
        before = translate_all(self._module, source_ids, num_new, 2 * ROWS, self._around)
        language_prefix = prefix[len(self._bundle.manifest.tokens.prompt_prefix) :]
        requests = [
            GenerationRequest(
                str(i), tuple(self._source(ids)), language_prefix, max_new_tokens=num_new
            )
            for i, ids in enumerate(source_ids)
        ]
        after = decode(self._bundle, requests)
        decode_batch = self._target_tokenizer.decode_batch
        old, new = (score(pairs, decode_batch(rows)) for rows in (before, after))
        shortlisted: tuple[TestScores, ...] = ()
        if shortlist := Shortlist.load(self._bundle):
            short = decode(self._bundle, _with_shortlists(requests, shortlist))
            shortlisted = _compare_bleu(new, score(pairs, decode_batch(short)))
        agreement = _agreement(before, after)
        errors = random_ids, differences.error, differences.own_error
        return Parity(*errors, agreement, _compare_bleu(old, new), shortlisted, old.bleu_signature)

    def _on_prose(self, path: Path, num_texts: int, random_ids: LogpError) -> Parity:
        from export.bundling.decoding import decode  # the engine: only texts are decoded
        from models.data.corpus import read_documents

        documents = encode_all(self._source_tokenizer, read_documents(path))
        stream = [i for ids in documents for i in ids]
        length = min(PROMPT_LENGTH + NEW_TOKENS, self._limits.max_target_tokens - 1)
        starts = range(0, len(stream) - length + 1, length)
        windows = _spread([stream[start : start + length] for start in starts], num_texts, path)
        forced = [self._target(ids) for ids in _spread(windows, FORCED_TEXTS, path)]
        differences = self._force([[] for _ in forced], forced)
        prompts = [ids[:PROMPT_LENGTH] for ids in windows]
        num_new = length - PROMPT_LENGTH
        before = [
            row
            for some in _parts(prompts)
            for row in continue_batch(self._module, some, num_new, self._around)
        ]
        requests = [
            GenerationRequest(str(i), prompt_ids=tuple(prompt), max_new_tokens=num_new)
            for i, prompt in enumerate(prompts)
        ]
        agreement = _agreement(before, decode(self._bundle, requests))
        errors = random_ids, differences.error, differences.own_error
        return Parity(*errors, agreement, (differences.perplexity,))

    def _force(self, sources: Sources, targets: Ids) -> Differences:
        """Compute both sides for the same sources and targets."""
        differences = Differences()
        for some, forced in zip(_parts(sources), _parts(targets), strict=True):
            sides = zip(self._torch(some, forced), self._onnx(some, forced), strict=True)
            for target, (theirs, ours) in zip(forced, sides, strict=True):
                differences.add(theirs, ours[: len(target)], target)
        return differences

    def _torch(self, sources: Sources, targets: Sequence[list[int]]) -> Iterator[Array]:
        for source, target in zip(sources, targets, strict=True):
            read = encoder_input(self._bundle.manifest, source)
            yield teacher_forced_log_probabilities(self._module, read, target).numpy()

    def _onnx(self, sources: Sources, targets: Sequence[list[int]]) -> Array:
        """Score [batch, longest target, vocab]; rows go on with padding after their end."""
        longest = max(map(len, targets))
        padded = [[*ids, *[self._config.pad_id] * (longest - len(ids))] for ids in targets]
        return GraphRows(self._bundle, sources).score(padded)

    def _source(self, ids: list[int]) -> list[int]:
        """Return the encoder's input; a language model has none."""
        prefix, suffix = self._around.source_prefix, self._around.source_suffix
        limit = self._limits.max_source_tokens
        return [*prefix, *ids[: limit - len(prefix + suffix)], *suffix] if limit else []

    def _target(self, ids: list[int]) -> list[int]:
        prefix = self._around.prompt_prefix
        return [*prefix, *ids[: self._limits.max_target_tokens - len(prefix)]]


def random_pictures(manifest: Manifest, count: int) -> list[Picture]:
    """Return pictures of large areas, which vary more than single pixels would."""
    assert manifest.picture is not None
    random, size = np.random.default_rng(0), manifest.picture.size
    areas = random.integers(0, 256, (count, 4, 4, 3), np.uint8)
    pixels = areas.repeat(-(-size // 4), 1).repeat(-(-size // 4), 2)[:, :size, :size]
    num_positions = manifest.limits.max_source_tokens or 0
    return [Picture(picture.tobytes(), num_positions) for picture in pixels]


def random_sounds(manifest: Manifest, count: int) -> list[Audio]:
    """Return spectrograms with values in the range of log-mel features, each of large areas, which
    vary more than single numbers would.
    """
    audio, random = manifest.audio, np.random.default_rng(0)
    assert audio is not None
    mels, frames = audio.num_mels, audio.num_frames
    areas = random.uniform(-0.5, 1.5, (count, 8, 16)).astype(np.float32)
    features = areas.repeat(-(-mels // 8), 1).repeat(-(-frames // 16), 2)[:, :mels, :frames]
    num_positions = manifest.limits.max_source_tokens or 0
    return [Audio(sound.tobytes(), num_positions) for sound in features]


def _special_tokens(manifest: Manifest) -> Tokens:
    """Take those between the first language that it reads and the first that it writes."""
    if manifest.task is not Task.TRANSLATE:
        return manifest.tokens
    return manifest.tokens.with_languages(
        manifest.source_languages[0], manifest.target_languages[0]
    )


def _with_shortlists(
    requests: Sequence[GenerationRequest], shortlist: Shortlist
) -> list[GenerationRequest]:
    """Ask for the same as the service does."""
    return [
        replace(request, shortlist=shortlist.tokens_for(request.source_ids or ()))
        for request in requests
    ]


def _compare_bleu(before: "TestResult", after: "TestResult") -> tuple[TestScores, ...]:
    return tuple(
        TestScores(f"BLEU {a.origin}", a.bleu, b.bleu)
        for a, b in zip(before.scores, after.scores, strict=True)
    )


def _agreement(before: Ids, after: Ids) -> TextAgreement:
    pairs = list(zip(before, after, strict=True))
    return TextAgreement(
        num_texts=len(pairs),
        num_identical=sum(a == b for a, b in pairs),
        num_tokens=sum(max(len(a), len(b)) for a, b in pairs),
        num_same_tokens=sum(x == y for a, b in pairs for x, y in zip(a, b, strict=False)),
    )


def _spread(items: Sequence[Any], num_items: int, path: Path) -> list[Any]:
    """At most ``num_items`` of them, evenly spread."""
    if not items:
        raise InputError(f"{path}: holds no text to compare on")
    step = max(1.0, len(items) / num_items)
    return [items[math.floor(i * step)] for i in range(min(num_items, len(items)))]


def _parts(rows: Sequence[Row]) -> Iterable[Sequence[Row]]:
    return (rows[start : start + ROWS] for start in range(0, len(rows), ROWS))


class TextVerifier:
    """Compares both sides on the same texts."""

    def __init__(self, checkpoint: Checkpoint, bundle: Bundle) -> None:
        assert isinstance(checkpoint.config, EncoderConfig)
        self._config, self._bundle = checkpoint.config, bundle
        self._module = load_encoder(checkpoint)
        self._tokenizer = read_tokenizer(checkpoint.tokenizer)

    def compare(self, test_file: Path | None, num_texts: int) -> VectorParity:
        """Compare on random ids, and on the first lines of ``test_file`` if there is one."""
        names = {Task.EMBED: "embeddings", Task.FILL_MASK: "log-probabilities of masked words"}
        name = names.get(self._bundle.manifest.task, "logits")
        random_ids = self._compare(*self._random_texts())
        if test_file is None:
            return VectorParity(name, random_ids)
        lines = [line for line in read_text(test_file).splitlines() if line.strip()][:num_texts]
        if not lines:
            raise InputError(f"{test_file}: holds no text to compare on")
        tokens, longest = self._bundle.manifest.tokens, self._config.max_source_tokens
        rows = add_special_tokens(encode_all(self._tokenizer, lines), tokens, longest)
        return VectorParity(name, random_ids, self._compare(rows, [[0] * len(r) for r in rows]))

    def _random_texts(self) -> tuple[Ids, Ids]:
        """Return random ids, in segments as if they were pairs."""
        random = np.random.default_rng(0)
        longest = min(RANDOM_LENGTH, self._config.max_source_tokens)
        lengths = random.integers(1, longest + 1, TEXTS_AT_ONCE).tolist()
        size, pad = self._config.vocab_size, self._config.pad_id
        rows = [random.choice(np.delete(np.arange(size), pad), length) for length in lengths]
        types = [np.arange(length) >= random.integers(1, longest) for length in lengths]
        return [row.tolist() for row in rows], [segments.astype(int).tolist() for segments in types]

    def _compare(self, rows: Ids, types: Ids) -> VectorError:
        head, graph = self._config.head, TextGraph(self._bundle)
        if isinstance(head, MaskedWordHead):
            rows = [_mask_tokens(row, head.mask_id) for row in rows]
        differences: list[Array] = []
        for start in range(0, len(rows), TEXTS_AT_ONCE):
            part = slice(start, start + TEXTS_AT_ONCE)
            before = vectors_of(self._module, rows[part], types[part])
            outputs = graph.run(rows[part], types[part])
            for place, theirs in enumerate(before):
                ours = {name: array[place] for name, array in outputs.items()}
                differences.append(_difference(theirs, ours).ravel())
        all_differences = np.concatenate(differences)
        return VectorError(float(all_differences.max()), float(all_differences.mean()), len(rows))


def _mask_tokens(ids: list[int], mask_id: int) -> list[int]:
    return [mask_id if place % MASKED == 0 else token_id for place, token_id in enumerate(ids)]


def _difference(theirs: Array, ours: Mapping[str, Array]) -> Array:
    """Return the differences of one text's numbers; of masked words those of the likeliest."""
    if TOP_IDS in ours:
        is_mask = ours[TOP_LOGP].any(axis=1)
        best = np.take_along_axis(theirs, ours[TOP_IDS][is_mask], axis=1)
        best -= np.logaddexp.reduce(theirs, axis=1, keepdims=True)
        return np.abs(best - ours[TOP_LOGP][is_mask])
    [output] = ours.values()
    return np.abs(theirs - (output[: len(theirs)] if theirs.ndim == 2 else output))
