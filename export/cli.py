"""`attendant export`: the command line of the export package."""

import importlib.util
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from models.command_errors import BUG, fail
from models.errors import InputError

if TYPE_CHECKING:
    from export.bundling.parity import AnyParity
    from export.bundling.writer import Verify
    from models.checkpoint import Checkpoint
    from serving.bundle.opening import Bundle


MOST_PROBLEMS = 200
INSTALL = "pip install 'attendant-server[cpu,train]'"
HOW_TO_COMPARE = f"--verify does it here, with torch: {INSTALL}"


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder of the bundle."
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16", "fp16", "int8", "int4"]),
    help="int8 is the fastest on CPU, bf16 and fp16 are for CUDA, int4 is the smallest."
    "  [default: what keeps the weights of a quantised SOURCE; else fp32]",
)
@click.option(
    "--name",
    help="Name of the model.  [default: that of SOURCE, or of the folder above one named `model`]",
)
@click.option(
    "--context-length",
    type=click.IntRange(min=2),
    help="Most tokens of a language model's prompt and output, where its own are too many.",
)
@click.option(
    "--kv-cache",
    type=click.Choice(["fp32", "fp16"]),
    help="Floats of a language model's keys and values on CPU. fp16 halves their memory and the"
    " time that long contexts take; log-probabilities change in the fourth digit.  [default: fp32]",
)
@click.option(
    "--split-tokens",
    type=click.IntRange(min=2),
    help="Longest sentence of a translator in tokens; longer ones are cut at clauses.  [default:"
    " what SOURCE says; else 100]",
)
@click.option(
    "--adapter",
    "adapters",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    multiple=True,
    help="Folder of a LoRA adapter (peft) to merge into SOURCE, a Hugging Face folder; several are"
    " added up.",
)
@click.option(
    "--source-language", help="Source language code, where SOURCE does not name it: en, pt_BR ..."
)
@click.option("--target-language", help="Target language code.")
@click.option(
    "--translation-prompt",
    help="Makes a chat model a translator: the message that asks for a translation, with {text} on"
    " a line of its own, and {source_language} and {target_language}.",
)
@click.option("--languages", help="Codes between which --translation-prompt translates: en,fr,de.")
@click.option(
    "--shortlist",
    "corpus",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Parallel corpus (as --test) to learn lexical shortlists from: of each sentence only the"
    " likeliest tokens are scored. For translation models in int8.",
)
@click.option(
    "--shortlist-best",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Most targets of a source token on a shortlist.",
)
@click.option(
    "--shortlist-frequent",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="How many of the corpus's most frequent target tokens are on every shortlist.",
)
@click.option(
    "--verify/--no-verify",
    default=None,
    help="Compare with the torch model.  [default: where torch is installed]",
)
@click.option(
    "--test",
    "test_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Test text to compare on: origin, source, target by tabs; prose for a language model;"
    " lines of text for an encoder.",
)
@click.option(
    "--texts",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="How many texts of --test to compare on.",
)
def export(
    source: Path,
    output: Path,
    precision: str | None,
    name: str | None,
    context_length: int | None,
    kv_cache: str | None,
    split_tokens: int | None,
    adapters: tuple[Path, ...],
    source_language: str | None,
    target_language: str | None,
    translation_prompt: str | None,
    languages: str | None,
    corpus: Path | None,
    shortlist_best: int,
    shortlist_frequent: int,
    verify: bool | None,
    test_file: Path | None,
    texts: int,
) -> None:
    """Turn the trained model SOURCE into an ONNX bundle that can be served.

    SOURCE is a checkpoint folder of `attendant train`, a folder of Hugging Face (config.json,
    safetensors, tokenizer), a GGUF file, or a file of whisper.cpp. It may also be a folder of
    Marian or Bergamot (model.npz or *.intgemm.alphas.bin, vocabularies, shortlist), or a model of
    CTranslate2 (model.bin), as faster-whisper has them. Packages of Argos Translate (.argosmodel)
    and checkpoints of OpenNMT-py, fairseq and openai/whisper are read, too. Nothing in it is
    executed.

    The bundle appears whole or not at all. Its model card says how far it is from the torch model.

    \b
    Examples:
      attendant export models/checkpoints/transformer-en-fr -o build/bundles/mine --precision int8
      attendant export ~/models/opus-mt-en-fr -o en-fr --precision int8 --shortlist pairs.tsv.gz
      attendant export ~/models/SmolLM2-135M-Instruct -o build/bundles/smollm2 --precision int8
      attendant export ~/models/all-MiniLM-L6-v2 -o build/bundles/minilm
      attendant export SmolLM2-135M-Instruct.Q4_1.gguf -o build/bundles/smollm2-q4
    """
    from export.readers.chat_translators import make_translator
    from export.readers.reading import read_model

    def read() -> "Checkpoint":
        checkpoint = read_model(source, context_length, adapters)
        checkpoint = checkpoint.with_languages(source_language, target_language)
        if split_tokens is not None:
            checkpoint = checkpoint.with_split_tokens(split_tokens)
        if translation_prompt is not None or languages is not None:
            codes = (languages or "").replace(",", " ").split()
            checkpoint = make_translator(checkpoint, translation_prompt or "", codes)
        if corpus is None:
            return checkpoint
        return _add_shortlists(checkpoint, corpus, precision, shortlist_best, shortlist_frequent)

    comparison = choose_comparison(verify, test_file, texts)
    export_model(
        read, source, output, precision, name, comparison, of_floats="fp32", kv_cache=kv_cache
    )


def export_model(
    read: "Callable[[], Checkpoint]",
    source: Path,
    output: Path,
    precision: str | None,
    name: str | None,
    comparison: "Verify | None",
    of_floats: str,
    kv_cache: str | None = None,
) -> None:
    """Export what `read` gives of the source. Says all that is wrong and ends the program with 2
    if it cannot be done.

    precision: by default what keeps the weights of a quantised source, else ``of_floats``.
    kv_cache: floats of a language model's keys and values, fp32 or fp16.
    """
    from export.bundling.parity import RecordedParity
    from export.bundling.writer import export_checkpoint, training_quality
    from models.checkpoint import CheckpointError
    from serving.bundle.manifest import Precision
    from serving.errors import BundleError

    try:
        checkpoint = read()
        for note in checkpoint.notes:
            click.echo(f"note: {note}", err=True)
        precision = precision or (f"int{checkpoint.bits}" if checkpoint.bits else of_floats)
        click.echo(f"exporting {source} in {precision}", err=True)
        if precision == Precision.BF16:
            comparison = None
        with handle_termination():
            parity = export_checkpoint(
                checkpoint,
                output,
                Precision(precision),
                name,
                comparison,
                has_fp16_cache=kv_cache == "fp16",
            )
    except (CheckpointError, BundleError) as error:
        fail(f"{source} cannot be exported:", *list_problems(error.problems))
    except (OSError, InputError) as error:
        fail(str(error))
    except Exception as error:
        error.add_note(BUG)
        raise
    if parity is not None:
        click.echo(parity.as_markdown(), err=True)
    elif precision == Precision.BF16:
        click.echo("not compared with torch: bf16 runs on a GPU alone", err=True)
    else:
        recorded = RecordedParity.from_quality(training_quality(checkpoint), precision)
        sentence = (
            f"compared with torch when it was shipped: {recorded.parity.summary}"
            if recorded
            else "not compared with torch"
        )
        click.echo(f"{sentence} ({HOW_TO_COMPARE})", err=True)
    click.echo(f"wrote {output}", err=True)


def _add_shortlists(
    checkpoint: "Checkpoint", corpus: Path, precision: str | None, num_best: int, num_frequent: int
) -> "Checkpoint":
    """The checkpoint with shortlists. In floats they would bring nothing: sums depend on how many
    tokens are scored, so the whole vocabulary is.
    """
    from export.bundling.shortlists import ShortlistOptions, with_shortlist

    if precision != "int8" and not (precision is None and checkpoint.bits == 8):
        raise InputError("--shortlist needs --precision int8: others score every token anyway")
    click.echo(f"learning shortlists from {corpus}", err=True)
    return with_shortlist(checkpoint, ShortlistOptions(corpus, num_best, num_frequent))


def list_problems(problems: list[str]) -> Iterator[str]:
    """Return a list of names, shortened to what fits a message."""
    yield from (f"  {problem}" for problem in problems[:MOST_PROBLEMS])
    if len(problems) > MOST_PROBLEMS:
        yield f"  and {len(problems) - MOST_PROBLEMS} more"


@contextmanager
def handle_termination() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end the program as Ctrl-C does: no half bundle stays behind."""

    def end(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def choose_comparison(verify: bool | None, test_file: Path | None, texts: int) -> "Verify | None":
    """The comparison with torch that was asked for, or that can be made."""
    needed = ("torch", "sacrebleu", "onnxruntime")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if verify is None:
        verify = test_file is not None or not missing
    if not verify:
        return None
    if missing:
        fail(f"comparing with torch needs {missing[0]}: {INSTALL}")

    def compare(checkpoint: "Checkpoint", bundle: "Bundle") -> "AnyParity":
        from export.bundling.verify import TextVerifier, TranslationVerifier

        click.echo("comparing with the torch model", err=True)
        verifier = TextVerifier if bundle.manifest.task.only_encodes else TranslationVerifier
        return verifier(checkpoint, bundle).compare(test_file, texts)

    return compare
