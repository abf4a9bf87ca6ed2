"""Makes the exchange that fits a bundle and the memory its states live in."""

from dataclasses import dataclass

from serving.bundle.manifest import Manifest
from serving.engine.batch import Batch
from serving.engine.exchange.blocks import StreamMemory
from serving.engine.exchange.device import DeviceExchange
from serving.engine.exchange.exchange import Exchange, HostExchange
from serving.engine.exchange.selector import Deciders, Selector
from serving.engine.graphs.graph import Graphs
from serving.engine.scores import WholeVocabulary
from serving.engine.shortlist.shortlists import Shortlists


@dataclass(frozen=True, slots=True)
class Around:
    """Holds what an exchange lies between."""

    manifest: Manifest
    batch: Batch
    graphs: Graphs
    deciders: Deciders


def make_exchange(around: Around, num_rows: int) -> Exchange:
    """num_rows: slots, and rows behind them for prompts in progress."""
    manifest, batch, memory = around.manifest, around.batch, around.graphs.memory
    if manifest.has_shortlist:
        return HostExchange(batch, Shortlists(manifest, num_rows))
    if not isinstance(memory, StreamMemory):
        return HostExchange(batch, WholeVocabulary(manifest, num_rows))
    selector = Selector(manifest, batch, memory, around.graphs.select, around.deciders)
    return DeviceExchange(manifest, batch, num_rows, memory, selector)
