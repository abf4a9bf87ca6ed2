"""What is done with a family: training, evaluating, measuring, each whole or not at all.

Training may share the machine with anything, since its budget is processor time; measuring wants a
quiet one.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from export.translators import translator
from export.zoo.errors import ZooError
from export.zoo.family import Family, about_bundle
from export.zoo.quality import Scorer
from export.zoo.results import Pace, Searches, Speed, Translation
from serving.bundle.manifest import Precision
from serving.engine.planning.machine import available_cpus

BEAMS = 5


@dataclass(frozen=True)
class Stage:
    """section: of the results file, which is there when the stage is done."""

    name: str
    section: str
    run: Callable[[Family], None]

    def is_done(self, family: Family) -> bool:
        if family.settings.again and self.run is not train:
            return False
        return getattr(family.saved, self.section, None) is not None


def train(family: Family) -> None:
    """To the end of the budget, from wherever it was stopped."""
    recipe, run = family.recipe, family.run
    if not run.is_finished:
        words = ["train", recipe.path, "--data", family.settings.data, "-o", run.folder]
        family.attendant(*words, *family.thread_options, shows=True)
    family.save()


def evaluate(family: Family) -> None:
    """Translate the test set greedily and by beam search, in fp32 and in int8."""
    _must_be_trained(family)
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
    sentences.write_text("".join(f"{pair.source}\n" for pair in family.test), encoding="utf-8")
    found = Speed(
        command=f"attendant zoo {family.name} --only measure",
        machine=_machine(),
        threads=family.settings.threads or available_cpus(),
        fp32=_pace(family, family.bundle(Precision.FP32), sentences),
        int8=_pace(family, family.bundle(Precision.INT8), sentences),
    )
    family.save(bundle=about_bundle(family.bundle(Precision.INT8)), speed=found)


STAGES = {
    stage.name: stage
    for stage in (
        Stage("train", "training", train),
        Stage("evaluate", "translation", evaluate),
        Stage("measure", "speed", measure),
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
    return translator(bundle, num_beams)([pair.source for pair in family.test])


def _pace(family: Family, bundle: Path, sentences: Path) -> Pace:
    words = ["bench", bundle, "--input", sentences, "--json", *family.thread_options]
    sizes = ["--batch", "1,32", "--requests", len(family.test)]
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
