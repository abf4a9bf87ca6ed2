"""How often languages are identified rightly: `python -m tests.serving.text.language_accuracy`.

Of each of ten languages there are 20 sentences, the same in all, written for this.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from serving.text.language_identification import Detection, LanguageIdentifier

DATA = Path(__file__).parents[2] / "data/languages.tsv"
Labelled = tuple[str, str]


def sentences() -> list[Labelled]:
    """Pairs of a language and a text in it."""
    lines = DATA.read_text(encoding="utf-8").splitlines()
    return [(language, text) for language, text in (line.split("\t") for line in lines)]


def three_words() -> list[Labelled]:
    """The first three words of each sentence, and the last three."""
    phrases = []
    for language, text in sentences():
        words = text.strip(".?!").split()
        phrases += [(language, " ".join(part)) for part in (words[:3], words[-3:])]
    return phrases


def mixed() -> Iterator[tuple[set[str], str]]:
    """Texts of which one half is in one language, the other, another sentence, in another."""
    by_language = defaultdict(list)
    for language, text in sentences():
        by_language[language].append(text)
    for one, texts in by_language.items():
        for other, others in by_language.items():
            if one != other:
                yield from (({one, other}, f"{texts[n]} {others[n + 1]}") for n in range(0, 18, 6))


class Accuracy:
    """Asks an identifier, which may answer with any of the ten languages."""

    def __init__(self) -> None:
        self.among = sorted({language for language, _ in sentences()})
        self._identify = LanguageIdentifier().identify

    def answers(self, labelled: list[Labelled]) -> list[tuple[bool, Detection]]:
        """Whether each first guess is right, and the guess."""
        guesses = [(language, self._identify(text, self.among)[0]) for language, text in labelled]
        return [(guess.language == language, guess) for language, guess in guesses]

    def rightness(self, labelled: list[Labelled]) -> float:
        return mean(right for right, _ in self.answers(labelled))

    def on_mixed_texts(self) -> tuple[float, float]:
        """How often the first guess is one of both languages, and the first two are both."""
        first, both = [], []
        for languages, text in mixed():
            one, other, *_ = self._identify(text, self.among)
            first.append(one.language in languages)
            both.append({one.language, other.language} == languages)
        return mean(first), mean(both)

    def when_none_is_right(self, labelled: list[Labelled]) -> float:
        """The mean confidence in texts whose language may not be answered."""
        return mean(
            self._identify(text, [each for each in self.among if each != language])[0].confidence
            for language, text in labelled
        )


def report() -> Iterator[str]:
    accuracy = Accuracy()
    for name, labelled in (("sentences", sentences()), ("three words", three_words())):
        answers = accuracy.answers(labelled)
        right = mean(right for right, _ in answers)
        confidence = mean(guess.confidence for _, guess in answers)
        yield f"{name}: {len(answers)} texts, {right:.1%} right, mean confidence {confidence:.1%}"
        by_language = {
            language: accuracy.rightness([pair for pair in labelled if pair[0] == language])
            for language in accuracy.among
        }
        yield "  " + ", ".join(f"{language} {right:.0%}" for language, right in by_language.items())
        for low, high in ((0.0, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
            band = [right for right, guess in answers if low <= guess.confidence < high]
            if band:
                share = f"{mean(band):.0%} of {len(band)} right"
                yield f"  of confidence {low:.0%} to {min(high, 1):.0%}: {share}"
        outside = accuracy.when_none_is_right(labelled)
        yield f"  mean confidence where their language is not among the answers: {outside:.1%}"
    first, both = accuracy.on_mixed_texts()
    yield f"two languages: first guess one of them {first:.1%}, first two both {both:.1%}"


if __name__ == "__main__":
    print("\n".join(report()))
