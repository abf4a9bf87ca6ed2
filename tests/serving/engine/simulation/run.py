"""Simulate the engines for many steps: `python -m tests.serving.engine.simulation.run --help`."""

import logging
import random
import sys
import traceback

import click
from tqdm import tqdm

from tests.serving.engine.simulation.episode import run_episode


@click.command()
@click.option("--steps", default=10_000_000, show_default=True, help="Number of steps at least.")
@click.option("--seed", type=int, help="Seed of the first episode; by default a new one.")
def run(steps: int, seed: int | None) -> None:
    """Simulate episodes of consecutive seeds. Stops at the first that fails, and names its seed."""
    logging.disable(logging.CRITICAL)  # engines that die say so
    first = random.randrange(2**32) if seed is None else seed
    done = 0
    with tqdm(total=steps, unit=" steps") as bar:
        for number in range(sys.maxsize):
            try:
                turns = run_episode(first + number)
            except BaseException:
                bar.close()
                traceback.print_exc()
                click.echo(f"Failed. Repeat it with --seed {first + number} --steps 1", err=True)
                sys.exit(1)
            done += turns
            bar.update(turns)
            if done >= steps:
                bar.close()
                click.echo(
                    f"{done} steps in {number + 1} episodes, seeds {first} to {first + number}"
                )
                return


if __name__ == "__main__":
    run()
