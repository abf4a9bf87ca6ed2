"""Pictures of a shipped translation model: BLEU by the length of the source, and an alignment."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from export.zoo.commands import attendant
from export.zoo.picture import saved
from export.zoo.quality import Scorer
from models.data.corpus import Pair
from serving.bundle.opening import open_bundle

BY_LENGTH, ALIGNMENT = "by-length.svg", "alignment.png"
FEWEST = 200  # sentences of an origin that is drawn: bins of fewer say little
# of Bahdanau et al. 2015, figure 3
SENTENCE = "The agreement on the European Economic Area was signed in August 1992."
TRANSLATION = "L'accord sur la zone économique européenne a été signé en août 1992."


def has_alignment(bundle: Path) -> bool:
    return open_bundle(bundle).manifest.num_attention_heads > 0


def draw_alignment(bundle: Path, path: Path) -> None:
    """Draw what each word of a given translation attends to. Raises ZooError."""
    attendant("align", "--model", bundle, "-o", path, SENTENCE, "--translation", TRANSLATION)


def draw_by_length(pairs: Sequence[Pair], translations: Sequence[str], path: Path) -> None:
    """Draw BLEU over words of the source, a line for every origin of many sentences."""
    counts = Counter(pair.origin for pair in pairs)
    with saved(path, 1) as [axis]:
        for origin in sorted(name for name, count in counts.items() if count >= FEWEST):
            own = [
                (pair, text)
                for pair, text in zip(pairs, translations, strict=True)
                if pair.origin == origin
            ]
            bins = Scorer([pair for pair, _ in own]).by_length([text for _, text in own])
            words, bleu = [each.mean_words for each in bins], [each.bleu for each in bins]
            axis.plot(words, bleu, marker="o", markersize=3, label=f"{origin} ({len(own):,})")
        axis.set(xlabel="words of the source", ylabel="BLEU (int8, greedy)")
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(frameon=False)
