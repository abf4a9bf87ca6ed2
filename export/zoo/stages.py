"""The stages of a family: training, evaluation, measurement. Each is done completely or not at all.

Training may share the machine, because its budget is processor time; measurement needs a quiet
machine.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from export.scoring.scorers import prose_scorer, translator
from export.zoo.family import Family, about_bundle
from export.zoo.quality import Scorer
from export.zoo.results import Document, Pace, Prose, Searches, Speed, Translation, ZooError
from serving.bundle.manifest import Precision
from serving.engine.runtime.machine import available_cpus

BEAMS = 5
NUM_PROMPTS = 200  # of a language model, to measure its speed
PROMPT_WORDS = 8


@dataclass(frozen=True)
class Stage:
    """sections: of the results file, one of which is there when the stage is done."""

    name: str
    sections: tuple[str, ...]
    run: Callable[[Family], None]

    def is_done(self, family: Family) -> bool:
        if family.settings.again and self.run is not train:
            return False
        return any(getattr(family.saved, each, None) is not None for each in self.sections)


def train(family: Family) -> None:
    """To the end of the budget, from wherever it was stopped."""
    if not family.run.is_finished:
        family.train()
    family.save()


def evaluate(family: Family) -> None:
    """Score in fp32 and in int8: translations, greedy and by beam search, or prose."""
    _must_be_trained(family)
    if family.recipe.is_of_prose:
        _evaluate_prose(family)
    else:
        _evaluate_translations(family)


def _evaluate_prose(family: Family) -> None:
    fp32, int8 = (
        prose_scorer(family.bundle(precision))(family.held_out)
        for precision in (Precision.FP32, Precision.INT8)
    )
    found = Prose(
        command=f"attendant zoo {family.name} --only evaluate",
        documents=fp32.documents,
        bytes=fp32.bytes,
        tokens=fp32.tokens,
        window=fp32.window,
        stride=fp32.stride,
        fp32=fp32.bits_per_byte,
        int8=int8.bits_per_byte,
        perplexity=fp32.perplexity,
        by_document=tuple(Document(**asdict(each)) for each in fp32.by_document),
    )
    family.save(bundle=about_bundle(family.bundle(Precision.INT8)), prose=found)


def _evaluate_translations(family: Family) -> None:
    scorer = Scorer(family.test)
    fp32, int8 = family.bundle(Precision.FP32), family.bundle(Precision.INT8)
    beams = _translations(family, fp32, BEAMS)
    found = Translation(
        command=f"attendant zoo {family.name} --only evaluate",
        test=str(family.recipe.config.data.test),
        sentences=len(family.test),
        fp32=Searches(
            greedy=scorer.quality(_translations(family, fp32)), beam_5=scorer.quality(beams)
        ),
        int8=Searches(
            greedy=scorer.quality(_translations(family, int8)),
            beam_5=scorer.quality(_translations(family, int8, BEAMS)),
        ),
        by_length=scorer.by_length(beams),
        **scorer.signatures(),
    )
    family.save(bundle=about_bundle(int8), translation=found)


def measure(family: Family) -> None:
    """The engine's speed on the test set, and against that of its step graph."""
    _must_be_trained(family)
    sentences = family.folder / "sentences.txt"
    texts = _beginnings(family) if family.recipe.is_of_prose else _sources(family)
    sentences.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    found = Speed(
        command=f"attendant zoo {family.name} --only measure",
        machine=_machine(),
        threads=family.settings.threads or available_cpus(),
        fp32=_pace(family, family.bundle(Precision.FP32), sentences, len(texts)),
        int8=_pace(family, family.bundle(Precision.INT8), sentences, len(texts)),
    )
    family.save(bundle=about_bundle(family.bundle(Precision.INT8)), speed=found)


STAGES = {
    stage.name: stage
    for stage in (
        Stage("train", ("training",), train),
        Stage("evaluate", ("translation", "prose"), evaluate),
        Stage("measure", ("speed",), measure),
    )
}


def chosen(names: Iterable[str]) -> list[Stage]:
    """The stages of these names, in the order in which they are done; without names all."""
    wanted = set(names) or set(STAGES)
    return [stage for name, stage in STAGES.items() if name in wanted]


def _must_be_trained(family: Family) -> None:
    if not family.run.is_finished:
        raise ZooError([f"it is not trained yet: attendant zoo {family.name} --only train"])


def _translations(family: Family, bundle: Path, num_beams: int | None = None) -> list[str]:
    return translator(bundle, num_beams)(_sources(family))


def _sources(family: Family) -> list[str]:
    return [pair.source for pair in family.test]


def _beginnings(family: Family) -> list[str]:
    """Prompts for a language model: how paragraphs begin that were held out."""
    paragraphs = (text for document in family.held_out for text in document.split("\n"))
    return [" ".join(text.split()[:PROMPT_WORDS]) for text in islice(paragraphs, NUM_PROMPTS)]


def _pace(family: Family, bundle: Path, sentences: Path, num_texts: int) -> Pace:
    words = ["bench", bundle, "--input", sentences, "--json", *family.thread_options]
    sizes = ["--batch", "1,32", "--requests", num_texts]
    loops = json.loads(family.attendant(*words, *sizes))["results"]
    graph = ["--compare", "graph", "--batch", 32]
    [compared] = json.loads(family.attendant(*words, *graph))["results"]
    return Pace(
        batch_1=loops[0]["tokens_per_second"],
        batch_32=loops[1]["tokens_per_second"],
        engine_over_graph=round(compared["median"], 3),
    )


def _machine() -> str:
    """The processor's own name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown processor")
