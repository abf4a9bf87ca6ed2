"""Runs lines through a model that only encodes, for the commands that do."""

from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from serving.commands.common import lines_of, progress_bar
from serving.errors import RequestError

if TYPE_CHECKING:
    from serving.bundle.manifest import EncoderSpec, Task
    from serving.engine.config import EngineConfig
    from serving.pipelines.jobs import EncodeJob, Input, Matrix

WINDOWS = 16  # full batches of lines that are read ahead: among them the longest go first
Parse = Callable[[str], "Input"]  # raises RequestError of the field "inputs"


async def vectors_of(
    path: Path,
    config: "EngineConfig",
    task: "Task",
    job: "EncodeJob",
    file: BinaryIO,
    parse: Parse,
) -> AsyncGenerator["tuple[EncoderSpec, Matrix]", None]:
    """Yield what the bundle is, and the vector of each line, f32 [1, width], in order.

    job: that of every line, but for the line. parse: makes the input of a line without its end.
    """
    from serving.pipelines.decoding import Decoding
    from serving.pipelines.loading import opened
    from serving.pipelines.streams import in_order
    from serving.request import MAX_PRIORITY

    async with opened(path, config) as catalog:
        [card] = catalog.own_cards
        encoder = await catalog.named(card.name, task)
        assert card.encoder is not None
        longest_first = file.seekable()  # whoever waits for a pipe's first line waits for no others

        async def work(numbered: tuple[int, str]) -> "Matrix":
            number, line = numbered
            priority = -min(len(line), MAX_PRIORITY) if longest_first else 0
            try:
                own = replace(
                    job,
                    request_id=f"line {number}",
                    inputs=(parse(line),),
                    decoding=Decoding(priority=priority),
                )
                return (await encoder.run(own)).values
            except RequestError as error:
                if error.field != "inputs":
                    raise
                raise error.with_field(f"line {number}") from None

        with progress_bar(file) as bar:
            numbered = enumerate(_lines(file), start=1)
            async for vector in in_order(work, numbered, WINDOWS * config.slots):
                yield card.encoder, vector
                bar.update()


def _lines(file: BinaryIO) -> Iterator[str]:
    return (line.rstrip("\r\n") for line in lines_of(file))
