"""`attendant train`, `average`, `bench-torch` and `plot-gradients`; torch is imported late."""

import json
import sys
from pathlib import Path
from typing import TextIO

import click

from models.command_errors import fail, reported_errors

PICTURES = (".pdf", ".png", ".svg")
DEFAULT_MINUTES = 30


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--pairs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="In place of CONFIG: train a translator on a file of lines with a sentence, a tab and its "
    "translation.",
)
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="In place of CONFIG: train a language model on a file of prose.",
)
@click.option("--source", help="Language of the first column of --pairs.  [default: identified]")
@click.option("--target", help="Language of the second column of --pairs.  [default: identified]")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data"),
    show_default=True,
    help="Folder that the configuration's data paths are relative to.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the run.  [default: build/runs/NAME]",
)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads.  [default: all cores]")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit in place of the configuration's max_minutes: wall-clock minutes, whatever its "
    "clock, validations and earlier calls of the same run included. The learning rate falls to "
    f"zero by then. What is read before and evaluated at the end is added. With --pairs and --text "
    f"sizes are chosen for it.  [default: the configuration's, or {DEFAULT_MINUTES}]",
)
@click.option(
    "--start",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="CHECKPOINT",
    help="Begin with the weights and the tokenizer of a checkpoint of the same shape: to train it "
    "longer, or on your own data. A lower learning rate than that of fresh weights suits. A run "
    "that has begun goes on with its own weights.",
)
def train(
    config: Path | None,
    pairs: Path | None,
    text: Path | None,
    source: str | None,
    target: str | None,
    data: Path,
    output: Path | None,
    threads: int | None,
    minutes: float | None,
    start: Path | None,
) -> None:
    """Train a model on --pairs or --text, or as CONFIG (TOML) says; started again, it goes on.

    With --pairs or --text the sizes are chosen from the amount of text and the time, shown in a
    table and written as a configuration into the run's folder, to be changed and trained again.

    The run's folder gets metrics.jsonl, curve.png and, at the end, checkpoint/ with config.json,
    model.safetensors, tokenizer.json and a model card. A GPU is used where torch finds one, bf16
    where the machine has instructions for it; the first line says what was taken.

    SIGTERM or Ctrl-C saves everything and stops after the step, a second one at once; a kill
    loses at most one validation interval. A shorter --minutes ends a stopped run with what is best
    so far, a longer one goes on with a run that has ended.

    \b
    Examples:
      attendant train --pairs my.tsv --minutes 20
      attendant train --text novel.txt
      attendant train models/recipes/transformer-en-fr.toml --data data --minutes 45
      attendant train mine.toml --start models/checkpoints/transformer-en-fr --data mine
      attendant export build/runs/transformer-en-fr/checkpoint -o build/bundles/mine
    """
    if [config, pairs, text].count(None) != 2:
        raise click.UsageError("name one of CONFIG, --pairs and --text")
    if pairs is None and (source or target):
        raise click.UsageError("--source and --target belong to --pairs")
    with reported_errors("training"):
        import torch

        from models.checkpoint import load_checkpoint
        from models.training.config import read_config
        from models.training.recipe import write_language_model, write_translator
        from models.training.state import TrainingStopped
        from models.training.trainer import Trainer

        if threads:
            torch.set_num_threads(threads)
        if config is None:
            limit = minutes or DEFAULT_MINUTES
            if pairs:
                config = write_translator(pairs, output, limit, source, target)
            else:
                assert text is not None
                config = write_language_model(text, output, limit)
        settings = read_config(config)
        settings = settings.with_minutes(minutes) if minutes else settings
        folder = output or Path("build/runs") / settings.name
        try:
            checkpoint = load_checkpoint(start) if start else None
            trainer = Trainer(settings, data, folder, start=checkpoint)
            with trainer.brake.on_signals():
                click.echo(trainer.opening, err=True)
                trainer.run()
        except TrainingStopped as stop:
            step = trainer.progress.step
            click.echo(f"stopped after step {step:,}; the same command goes on", err=True)
            sys.exit(128 + stop.signal_number)
        except KeyboardInterrupt:
            click.echo("stopped; the same command goes on from the last validation", err=True)
            sys.exit(130)
        click.echo(trainer.closing, err=True)


@click.command()
@click.argument(
    "checkpoints",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    nargs=-1,
    required=True,
    metavar="CHECKPOINT...",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the averaged checkpoint.",
)
@click.option(
    "--share",
    "shares",
    type=click.FloatRange(min=0, min_open=True),
    multiple=True,
    help="How much of a CHECKPOINT there is to be; once for each, in order.  [default: alike]",
)
def average(checkpoints: tuple[Path, ...], output: Path, shares: tuple[float, ...]) -> None:
    """Average the weights of several checkpoints of one shape and vocabulary.

    Runs that went on from the same weights (`attendant train --start`) mostly make a better model
    together than each alone (Wortsman et al. 2022). What is no weight is the last one's, its model
    card included: `attendant lab ship` scores the average and completes the card.

    \b
    Example:
      attendant lab average models/checkpoints/transformer-en-fr build/runs/mine/checkpoint \\
        -o build/averaged --share 0.4 --share 0.6
    """
    from models.checkpoint import average_checkpoints

    if len(checkpoints) < 2:
        raise click.UsageError("name two checkpoints at least")
    if shares and len(shares) != len(checkpoints):
        raise click.UsageError(f"{len(checkpoints)} checkpoints, but {len(shares)} times --share")
    if output.resolve() in [path.resolve() for path in checkpoints]:
        raise click.UsageError(f"{output} is one of those to average: name another folder")
    with reported_errors("averaging"):
        average_checkpoints(checkpoints, shares or [1.0] * len(checkpoints), output)
    click.echo(f"wrote {output}", err=True)


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "input_file",
    type=click.File(encoding="utf-8"),
    required=True,
    help="Sentences or prompts, one a line; - reads standard input.",
)
@click.option("--batch", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--requests", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads.  [default: all cores]")
@click.option("--by-length", is_flag=True, help="Sort all sentences before they are batched.")
def bench_torch(
    checkpoint: Path,
    input_file: TextIO,
    batch: int,
    requests: int,
    threads: int | None,
    by_length: bool,
) -> None:
    """Measure a plain batched torch loop with a key-value cache on CHECKPOINT, as JSON.

    This is what `attendant bench` is compared with: the same weights in fp32, greedy, static
    batches of sentences as they come.

    \b
    Example:
      attendant lab bench-torch models/checkpoints/transformer-en-fr --input sentences.txt
    """
    with reported_errors("the torch loop"):
        import torch

        from models.checkpoint import load_checkpoint
        from models.torch_bench import measure

        if threads:
            torch.set_num_threads(threads)
        lines = [line for line in input_file.read().splitlines() if line.strip()]
        if not lines:
            fail("the input holds no text")
        opened = load_checkpoint(checkpoint)
        speed = measure(opened, lines, batch, requests, by_length=by_length)
    click.echo(json.dumps(vars(speed)))


@click.command()
@click.argument(
    "checkpoints", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="CHECKPOINT..."
)
@click.option(
    "--text",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    required=True,
    help="What they read. Language models: prose. Translators: lines of source, tab, translation.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The picture: .svg, .png or .pdf.",
)
@click.option(
    "--texts",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Mean over so many windows or pairs, taken evenly from the file.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=2),
    default=96,
    show_default=True,
    help="Length of a language model's windows, and so the farthest distance.",
)
def plot_gradients(
    checkpoints: tuple[Path, ...], text: Path, output: Path, texts: int, tokens: int
) -> None:
    """Draw how far back each CHECKPOINT learns: its loss's gradient by distance.

    The loss of one token is differentiated by the vector of every token read before it. The norm of
    that gradient stands over the number of tokens in between, as a share of the nearest token's,
    on a logarithmic scale: how much a word that far back could still teach.

    A plain RNN's falls exponentially, a straight line down: each step multiplies by the same
    matrix and a slope of tanh below 1. Gates let GRUs and LSTMs fall more slowly. With attention it
    stays level, as any word is one step away. A translator's source and target count as one text:
    attention brings the gradient up again where the words lie that are translated.

    What is written says for each model from which distance on it stays under a tenth and under a
    hundredth. Fresh weights show what an architecture can learn, trained ones what it did.

    \b
    Examples:
      attendant lab plot-gradients build/runs/gru-lm/checkpoint build/runs/llama-lm/checkpoint \\
        --text novel.txt -o reach.svg
      attendant lab plot-gradients models/checkpoints/bahdanau-en-fr \\
        models/checkpoints/transformer-en-fr --text pairs.tsv -o reach.svg
    """
    if output.suffix.lower() not in PICTURES:
        raise click.UsageError(f"-o {output}: the name must end with one of {', '.join(PICTURES)}")
    with reported_errors("the picture"):
        from models.checkpoint import load_checkpoint
        from models.gradients import Amount, draw, measure

        opened = [load_checkpoint(path) for path in checkpoints]
        if len({checkpoint.config.task for checkpoint in opened}) > 1:
            fail("language models and translators read other texts: draw each kind by itself")
        reaches = [measure(checkpoint, text, Amount(texts, tokens)) for checkpoint in opened]
        draw(reaches, output)
    for reach in reaches:
        click.echo(str(reach))
