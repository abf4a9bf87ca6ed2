"""Results as a family would have them, from the few numbers that a test is about."""

from collections.abc import Sequence

from export.zoo.results import (
    DocumentBits,
    LengthBin,
    ProseResults,
    Results,
    Searches,
    SpeedResults,
    StateBytes,
    TokensPerSecond,
    TrainingResults,
    TranslationQuality,
    TranslationResults,
    Validation,
)


def results(
    name: str,
    bleu: float = 50.0,
    by_length: Sequence[float] = (),
    has_attention: bool = True,
    languages: str = "en-fr",
    minutes: float = 10.0,
    year: int = 2015,
    epochs: float = 9.0,
) -> Results:
    """`by_length`: BLEU of sentences of 5, 10, 15, ... words; the interval of BLEU is 1."""
    return Results(
        name=name,
        title=f"Someone et al. {year}",
        architecture="bahdanau",
        languages=languages,
        parameters=2_600_000,
        checkpoint="0" * 64,
        training=_training(minutes, epochs),
        bundle=StateBytes(
            has_attention=has_attention,
            fixed_bytes=2048,
            bytes_per_source_token=512,
            bytes_per_target_token=0,
        ),
        translation=_translation(bleu, by_length),
        speed=SpeedResults(command="", machine="abacus", threads=2, fp32=_pace(1), int8=_pace(2)),
    )


def prose_results(
    name: str, bits: float = 1.5, by_document: Sequence[float] = (), epochs: float = 9.0
) -> Results:
    """Make those of a language model. `by_document`: bits of 1,000 bytes each."""
    actual = results(name, languages="en", epochs=epochs)
    prose = ProseResults(
        command="",
        documents=3,
        bytes=9000,
        tokens=3000,
        window=64,
        stride=32,
        fp32=bits,
        int8=bits + 0.01,
        perplexity=40.0,
        by_document=tuple(DocumentBits(bytes=1000, bits=each) for each in by_document),
    )
    return actual.model_copy(update={"translation": None, "prose": prose})


def with_curve(found: Results, *bleu: float | None) -> Results:
    """The same, with a validation every minute."""
    assert found.training is not None
    looks = [Validation(minutes=i, dev_loss=3.0 - i, dev_bleu=b) for i, b in enumerate(bleu, 1)]
    training = found.training.model_copy(update={"curve": tuple(looks)})
    return found.model_copy(update={"training": training})


def _training(minutes: float, epochs: float) -> TrainingResults:
    return TrainingResults(
        command="",
        clock="processor",
        max_minutes=minutes,
        minutes=minutes,
        tokens_per_batch=2048,
        steps=9,
        epochs=epochs,
        dev_loss=2.0,
    )


def _translation(bleu: float, by_length: Sequence[float]) -> TranslationResults:
    quality = TranslationQuality(bleu=bleu, bleu_interval=1.0, chrf=70.0, lowercased_bleu=bleu + 1)
    searches = Searches(greedy=quality, beam_5=quality)
    bins = [
        LengthBin(words=f"{words}-{words + 4}", sentences=10, mean_words=words, bleu=each)
        for words, each in zip(range(5, 100, 5), by_length, strict=False)
    ]
    return TranslationResults(
        command="",
        test="test",
        sentences=1000,
        bleu_signature="case:mixed",
        lowercased_bleu_signature="case:lc",
        chrf_signature="nc:6",
        fp32=searches,
        int8=searches,
        by_length=tuple(bins),
    )


def _pace(factor: float) -> TokensPerSecond:
    return TokensPerSecond(batch_1=1000 * factor, batch_32=20000 * factor, engine_over_graph=0.75)
