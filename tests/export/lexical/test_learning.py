"""`attendant export --shortlist`: what is on the lists, what the card says, who cannot have any."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from export.cli import export
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import GenerationRequest
from serving.text.shortlist import Shortlist
from tests.export.lexical.worded import ID_OF, WORDS, corpus, worded_checkpoint
from tests.serving.engine.driving import comparable_story, run_all, run_alone
from tests.tiny import tiny_checkpoint

BEST, FREQUENT = 3, 24  # the window of the best, 20, is filled by the frequent alone
EOS = 2
FAMILIES = ["transformer", "transformer-ssru", "bahdanau", "luong", "convs2s", "rctm"]


def run(*args: object) -> Result:
    return CliRunner().invoke(export, [str(arg) for arg in args])


def exported(folder: Path, architecture: str, *options: object) -> Result:
    source = worded_checkpoint(architecture, folder / "mine")
    pairs = corpus(folder / "pairs.tsv")
    given = ("--precision", "int8", "--shortlist", pairs, "--shortlist-best", BEST)
    rest = ("--shortlist-frequent", FREQUENT, *(options or ("--no-verify",)))
    return run(source, "-o", folder / "out", *given, *rest)


@pytest.fixture(scope="module", params=FAMILIES)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundles")
    result = exported(folder, request.param)
    assert result.exit_code == 0, result.output
    return open_bundle(folder / "out")


def lists_of(bundle: Bundle) -> Shortlist:
    shortlist = Shortlist.load(bundle)
    assert shortlist is not None
    return shortlist


def test_translations_copies_and_what_must_be_possible_are_on_the_list(bundle: Bundle) -> None:
    shortlist = lists_of(bundle)
    for number in range(60):
        source = (ID_OF[f"s{number}"], ID_OF["name4"], EOS)
        words = {WORDS[i] for i in shortlist.tokens_for(source)}
        assert {f"t{number}", "name4", "</s>", ".", "!"} <= words
        assert not {"<pad>", "<s>"} & words
    always = {WORDS[i] for i in shortlist.tokens_for(())}
    assert {"t0", "t1", "t2"} <= always and "t80" not in always
    assert len(shortlist.tokens_for((ID_OF["s80"],))) <= len(always) + BEST + 1


def test_the_card_says_how_they_were_made_and_what_they_are_like(bundle: Bundle) -> None:
    card = (bundle.folder / "README.md").read_text()
    assert "## Shortlists" in card and "`pairs.tsv`" in card
    figures = bundle.manifest.quality["shortlist"]
    assert (figures["num_pairs"], figures["num_held_out"]) == (594, 6)
    assert figures["recall"] > 0.95 and figures["mean_size"] < figures["vocab_size"] / 3
    assert f"{figures['recall']:.2%} of the" in card


def requests_of(bundle: Bundle) -> list[GenerationRequest]:
    shortlist, random = lists_of(bundle), np.random.default_rng(2)
    asks = [
        {},
        {"beam": BeamParams(4)},
        {"sampling": SamplingParams(temperature=1.0, seed=3)},
        {"beam": BeamParams(3)},
    ]
    sources = [(*random.integers(3, 120, 2 + i % 5).tolist(), EOS) for i in range(12)]
    return [
        GenerationRequest(
            str(i),
            source,
            shortlist=shortlist.tokens_for(source),
            max_new_tokens=8,
            **asks[i % len(asks)],  # type: ignore[arg-type]
        )
        for i, source in enumerate(sources)
    ]


def test_rows_say_the_same_alone_and_in_company(bundle: Bundle) -> None:
    requests = requests_of(bundle)
    together = run_all(Engine(bundle, EngineConfig(slots=40, threads=1)), requests)
    alone = Engine(bundle, EngineConfig(slots=8, threads=1))
    for request in requests:
        assert comparable_story(together[request.request_id]) == comparable_story(
            run_alone(alone, request)
        )
        if request.shortlist is not None:
            said = set(together[request.request_id].token_ids)
            assert said <= set(request.shortlist.tolist())


def test_what_a_request_names_can_come_though_it_is_on_no_list(bundle: Bundle) -> None:
    source, wanted = (ID_OF["s5"], EOS), ID_OF["t99"]
    shortlist = lists_of(bundle).tokens_for(source)
    assert wanted not in shortlist
    engine = Engine(bundle, EngineConfig(slots=4, threads=1))
    namings = [
        {"processors": ProcessorParams(logit_bias=((wanted, 100.0),))},
        {"processors": ProcessorParams(allowed_ids=(wanted,)), "ignore_eos": True},
        {"forced_ids": (wanted,)},
    ]
    for naming in namings:
        request = GenerationRequest(
            "named",
            source,
            shortlist=shortlist,
            max_new_tokens=6,
            **naming,  # type: ignore[arg-type]
        )
        assert wanted in run_alone(engine, request).token_ids, naming


def test_the_card_compares_with_the_whole_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("web\ts1 s2 .\tt1 t2 .\nweb\ts3 s4 !\tt3 t4 !\n")
    result = exported(tmp_path, "transformer", "--test", tmp_path / "test.tsv")
    assert result.exit_code == 0, result.output
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| this bundle | whole vocabulary | shortlists |" in card
    quality = json.loads((tmp_path / "out" / "bundle.json").read_text())["quality"]
    assert [each["name"] for each in quality["parity"]["shortlisted"]] == ["BLEU web"]


def test_who_cannot_have_any_is_told_why(tmp_path: Path) -> None:
    pairs = corpus(tmp_path / "pairs.tsv")
    out = ("-o", tmp_path / "out", "--no-verify", "--shortlist", pairs)
    source = worded_checkpoint("transformer", tmp_path / "mine")
    for precision in ((), ("--precision", "fp32"), ("--precision", "int4")):
        result = run(source, *out, *precision)
        assert result.exit_code == 2
        assert "--shortlist needs --precision int8" in result.output
    language_model = tiny_checkpoint("llama", tmp_path / "llama").folder
    result = run(language_model, *out, "--precision", "int8")
    assert result.exit_code == 2 and "for translation models" in result.output
    several = worded_checkpoint("transformer", tmp_path / "many", target_languages=["fr", "de"])
    result = run(several, *out, "--precision", "int8")
    assert result.exit_code == 2 and "of one pair of languages" in result.output
    corpus(pairs, num_pairs=20)
    result = run(source, *out, "--precision", "int8")
    assert result.exit_code == 2
    assert "has 20 sentence pairs, a shortlist needs 100" in result.output
    assert not (tmp_path / "out").exists()
