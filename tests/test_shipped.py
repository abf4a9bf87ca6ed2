"""The shipped checkpoints: real models, exported and decoded, against the torch they came from."""

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from export.bundling.decoding import decode
from export.bundling.parity import Parity, RecordedParity
from export.bundling.verify import TranslationVerifier
from export.bundling.writer import training_quality
from models.checkpoint import Checkpoint, load_checkpoint
from models.data.corpus import read_pairs
from models.data.tokenizer import encode_all, read_tokenizer
from models.decoding import BeamRules, beam_search, continue_batch, translate_all
from models.loading import load_module
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.pipelines.loading import open_model
from serving.pipelines.routing import find_translator
from serving.pipelines.translation.job import GlossaryEntry, TranslationJob
from serving.requests.parameters import BeamParams, SamplingParams
from serving.requests.request import FinishedEvent, FinishReason, GenerationRequest
from tests.cache import export_cached
from tests.serving.engine.driving import Story, run_all, run_alone

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "models" / "checkpoints"
NAMES = ["bahdanau-en-fr", "llama-en", "transformer-en-fr"]
TRANSLATORS = ["bahdanau-en-fr", "transformer-en-fr"]
PAIRS = read_pairs(ROOT / "tests" / "data" / "en-fr-200.tsv")
PROMPT_TOKENS, NEW_TOKENS = 12, 40
EVERY_SENTENCE = pytest.param(1, marks=pytest.mark.full)
TRACKED_LIMIT = 40 * 2**20

Exported = Callable[[Checkpoint, Precision], Bundle]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    bundles = tmp_path_factory.mktemp("bundles")

    def exported(checkpoint: Checkpoint, precision: Precision) -> Bundle:
        folder = bundles / f"{checkpoint.folder.name}-{precision}"
        if not folder.exists():
            export_cached(checkpoint, folder, precision)
        return open_bundle(folder)

    return exported


def source_ids(checkpoint: Checkpoint) -> list[list[int]]:
    return encode_all(read_tokenizer(checkpoint.tokenizer), [p.source for p in PAIRS])


@pytest.mark.parametrize("stride", [4, EVERY_SENTENCE])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_engine_and_torch_translate_alike(name: str, stride: int, exported: Exported) -> None:
    checkpoint = load_checkpoint(SHIPPED / name)
    sources = source_ids(checkpoint)[::stride]
    new_tokens = checkpoint.config.max_target_tokens - 1  # type: ignore[union-attr]
    theirs = translate_all(load_module(checkpoint), sources, new_tokens, batch_size=32)
    eos = checkpoint.config.eos_id
    requests = [GenerationRequest(str(i), (*ids, eos)) for i, ids in enumerate(sources)]
    assert decode(exported(checkpoint, Precision.FP32), requests) == theirs


@pytest.mark.parametrize("stride", [4, EVERY_SENTENCE])
def test_engine_and_torch_continue_prompts_alike(stride: int, exported: Exported) -> None:
    checkpoint = load_checkpoint(SHIPPED / "llama-en")
    sources = (ids * PROMPT_TOKENS for ids in source_ids(checkpoint)[::stride])
    prompts = [ids[:PROMPT_TOKENS] for ids in sources]
    theirs = continue_batch(load_module(checkpoint), prompts, NEW_TOKENS)
    requests = [
        GenerationRequest(str(i), None, tuple(ids), max_new_tokens=NEW_TOKENS)
        for i, ids in enumerate(prompts)
    ]
    assert decode(exported(checkpoint, Precision.FP32), requests) == theirs


GLOSSARY = {
    "hat": "bonnet",
    "station": "gare routière",
    "dog": "toutou",
    "umbrella": "parapluie pliant",
    "book": "bouquin",
    "train": "TGV",
    "potatoes": "patates",
}
WITH_TERMS = [
    "Where did you buy that hat at the station?",
    "The woman forgot her umbrella on the train.",
    "My brother is reading a book in the garden.",
    "A brown dog is running through the snow.",
    "She gave the old book to her friend at the station.",
    "A woman is eating potatoes.",
]


@pytest.mark.parametrize("name", TRANSLATORS)
async def test_terms_of_a_glossary_leave_sentences_whole(name: str, exported: Exported) -> None:
    bundle = exported(load_checkpoint(SHIPPED / name), Precision.INT8)
    entries = tuple(GlossaryEntry(term, (text,)) for term, text in GLOSSARY.items())
    plain = TranslationJob("plain", tuple(WITH_TERMS), "en", "fr", protection=True)
    async with open_model(bundle.folder, EngineConfig(device="cpu")) as catalog:
        translator = await find_translator(catalog, None, "en", "fr")
        free = (await translator.run(plain)).texts
        found = (await translator.run(replace(plain, glossary=entries))).texts
        for source, text in zip(WITH_TERMS, found, strict=True):
            alone = replace(plain, texts=(source,), glossary=entries)
            assert (await translator.run(alone)).texts == (text,)
    for source, without, text in zip(WITH_TERMS, free, found, strict=True):
        words = re.findall(r"\w+", source)
        wanted = [GLOSSARY[word] for word in words if word in GLOSSARY]
        assert all(text.count(each) == 1 for each in wanted), text
        assert not text.lower().startswith(tuple(each.lower() for each in wanted)), text
        assert without.split()[0] == text.split()[0]
        assert abs(len(without.split()) - len(text.split())) <= 3, (without, text)


@pytest.mark.parametrize(
    ("num_beams", "stride"),
    [(4, 20), *(pytest.param(n, 5, marks=pytest.mark.full) for n in (2, 4, 8))],
)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_engine_and_torch_find_the_same_by_beam_search(
    name: str, num_beams: int, stride: int, exported: Exported
) -> None:
    checkpoint = load_checkpoint(SHIPPED / name)
    module = load_module(checkpoint)
    sources = source_ids(checkpoint)[::stride]
    new_tokens = checkpoint.config.max_target_tokens - 1  # type: ignore[union-attr]
    eos = checkpoint.config.eos_id
    beam = BeamParams(num_beams, num_hypotheses=num_beams)
    requests = [GenerationRequest(str(i), (*ids, eos), beam=beam) for i, ids in enumerate(sources)]
    engine = Engine(exported(checkpoint, Precision.FP32), EngineConfig(slots=32))
    stories = run_all(engine, requests)
    for i, ids in enumerate(sources):
        theirs = beam_search(module, ids, [], BeamRules(num_beams, new_tokens))
        ours = hypotheses_of(stories[str(i)], eos)
        assert [score for _, score in ours] == pytest.approx([t.score for t in theirs], abs=1e-4)
        assert [ids for ids, _ in ours] == [t.token_ids for t in theirs]


def hypotheses_of(story: Story, eos: int) -> list[tuple[list[int], float]]:
    """Each with its </s>, and its score."""
    assert isinstance(story.final, FinishedEvent)
    return [
        ([*each.tokens.ids, *[eos] * (each.reason is FinishReason.STOP)], each.score)
        for each in story.final.hypotheses
    ]


@pytest.mark.parametrize(
    "precision", [pytest.param(Precision.FP32, marks=pytest.mark.full), Precision.INT8]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_request_says_the_same_alone_and_among_63_others(
    name: str, precision: Precision, exported: Exported
) -> None:
    checkpoint = load_checkpoint(SHIPPED / name)
    bundle = exported(checkpoint, precision)
    requests = []
    for i, ids in enumerate(source_ids(checkpoint)[:64]):
        sampling = SamplingParams(temperature=0.8 * (i % 2), top_p=0.9, seed=i)
        source, prompt = ((*ids, 2), ()) if name in TRANSLATORS else (None, tuple(ids))
        requests.append(GenerationRequest(str(i), source, prompt, sampling, max_new_tokens=40))
    together = run_all(Engine(bundle, EngineConfig(slots=64)), requests)
    alone = Engine(bundle, EngineConfig(slots=1))
    for request in requests:
        assert run_alone(alone, request).said == together[request.request_id].said


@pytest.mark.parametrize("name", NAMES)
def test_the_card_says_data_quality_curve_and_licence(name: str) -> None:
    card = (SHIPPED / name / "README.md").read_text()
    for heading in ("## Data", "## Quality", "## Training", "## Licence", "(curve.png)"):
        assert heading in card
    assert (SHIPPED / name / "curve.png").is_file()
    quality = json.loads((SHIPPED / name / "quality.json").read_text())
    if name in TRANSLATORS:
        assert quality["bleu_signature"] in card
        for score in quality["scores"]:
            assert f"| {score['origin']} | {score['sentences']} | {score['bleu']:.1f} |" in card


@pytest.mark.full
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16, Precision.INT8])
@pytest.mark.parametrize("name", NAMES)
def test_the_record_of_the_comparison_with_torch_holds(
    name: str, precision: Precision, exported: Exported
) -> None:
    """Other processors round in other orders, so that a few greedy texts may differ."""
    checkpoint = load_checkpoint(SHIPPED / name)
    record = RecordedParity.from_quality(training_quality(checkpoint), precision)
    assert record is not None
    test = ROOT / record.command.partition("--test ")[2]
    parity = TranslationVerifier(checkpoint, exported(checkpoint, precision)).compare(test, 500)
    assert isinstance(parity, Parity)
    for found, recorded in zip(
        (parity.random_ids, parity.own_tokens),
        (record.parity.random_ids, record.parity.own_tokens),
        strict=True,
    ):
        assert found is not None and recorded is not None
        assert found.mean == pytest.approx(recorded.mean, rel=0.2)
    assert parity.agreement is not None and record.parity.agreement is not None
    texts = parity.agreement.num_texts
    assert record.parity.agreement.num_texts == texts
    difference = parity.agreement.num_identical - record.parity.agreement.num_identical
    assert abs(difference) <= max(1, texts // 20)


def test_what_git_tracks_stays_under_40_mib() -> None:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    files = [ROOT / name for name in listing.split("\0") if name]
    assert sum(path.lstat().st_size for path in files if path.is_file()) < TRACKED_LIMIT
