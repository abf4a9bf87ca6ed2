"""`attendant evaluate`: sacreBLEU and chrF of a checkpoint or a bundle on a test set.

A checkpoint is decoded by the plain torch loop, a bundle by the engine that serves it.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from models.evaluation import Translate


@click.command()
@click.argument("model", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--test",
    "test_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    required=True,
    help="Lines of origin, source and target separated by tabs; gzipped if named .gz.",
)
@click.option("--json", "wants_json", is_flag=True, help="Report as JSON.")
def evaluate(model: Path, test_file: Path, wants_json: bool) -> None:
    """Score greedy translations of MODEL, a checkpoint folder or a bundle, per origin.

    \b
    Example:
      attendant evaluate build/bundles/transformer-en-fr-int8 --test data/en-fr/test.tsv.gz
    """
    from models.checkpoint import CheckpointError
    from serving.errors import BundleError

    try:
        from models.data.corpus import read_pairs
        from models.evaluation import evaluate as evaluate_on

        translate = _of_bundle(model) if (model / "bundle.json").exists() else _of_checkpoint(model)
        result = evaluate_on(read_pairs(test_file), translate)
    except ModuleNotFoundError as error:
        _fail(f"evaluating needs {error.name}: pip install 'attendant[train]'")
    except (BundleError, CheckpointError) as error:
        _fail(f"{model} cannot be used:", *(f"  {problem}" for problem in error.problems))
    except (OSError, ValueError) as error:
        _fail(str(error))
    if wants_json:
        click.echo(json.dumps(result.as_json()))
    else:
        click.echo(f"{result.as_table()}\n\n{result.bleu_signature}\n{result.chrf_signature}")


def _of_checkpoint(folder: Path) -> "Translate":
    from models.checkpoint import load_checkpoint
    from models.data.tokenizer import load_tokenizer
    from models.registry import load_module
    from models.translation import translate

    checkpoint = load_checkpoint(folder)
    _must_translate(checkpoint.config.task)
    module, tokenizer = load_module(checkpoint), load_tokenizer(checkpoint.tokenizer_path)
    return lambda texts: translate(module, tokenizer, texts)


def _of_bundle(folder: Path) -> "Translate":
    from export.decoding import decode
    from models.data.tokenizer import encode_all, load_tokenizer
    from serving.bundle.opening import open_bundle
    from serving.request import GenerationRequest

    bundle = open_bundle(folder)
    manifest = bundle.manifest
    _must_translate(manifest.task)
    tokenizer = load_tokenizer(bundle.tokenizer_path)
    limit = (manifest.limits.max_source_tokens or 0) - len(manifest.tokens.source_suffix)

    def translate(texts: list[str]) -> list[str]:
        sources = [
            (*manifest.tokens.source_prefix, *ids[:limit], *manifest.tokens.source_suffix)
            for ids in encode_all(tokenizer, texts)
        ]
        requests = [GenerationRequest(str(i), ids) for i, ids in enumerate(sources)]
        return tokenizer.decode_batch(decode(bundle, requests))

    return translate


def _must_translate(task: str) -> None:
    if task != "translate":
        raise ValueError(f"this model is for {task!r}; evaluate scores translations")


def _fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(line, err=True)
    sys.exit(2)
