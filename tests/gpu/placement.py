"""Every graph of every family wholly on the device: a node that is not is named."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx

from serving.bundle.manifest import SELECT
from serving.engine.runtime.session import assigned_nodes
from tests.gpu.bundles import HALVES, VARIANTS, label, tiny
from tests.gpu.findings import Finding, none_of
from tests.gpu.parts import Place

RECORDED = ("step", SELECT)
COPIES = ("MemcpyToHost", "MemcpyFromHost")


def find(place: Place) -> Iterator[Finding]:
    for precision in HALVES[place.device]:
        for number, (architecture, changes) in enumerate(VARIANTS):
            folder = place.folder / f"{precision}-{number}"
            bundle = tiny(architecture, changes, precision, folder)
            name = f"{label(architecture, changes)} {precision}"
            for graph in sorted(bundle.folder.glob("*.onnx")):
                yield _of_graph(place, graph, f"{name}: {graph.stem}")


def _of_graph(place: Place, graph: Path, what: str) -> Finding:
    """Copies matter in graphs that are recorded: attention is computed for who asks for it, and
    sources are read once.
    """
    optimised = place.folder / "optimised.onnx"
    try:
        nodes = assigned_nodes(graph, place.device, optimised)
    except Exception as error:  # ONNX Runtime's own exceptions share no narrower base
        reason = str(error).strip().splitlines()[-1]
        return none_of(what, [f"it does not load: {reason[-200:]}"], "graphs that do not load")
    home = f"{place.device.upper()}ExecutionProvider"
    elsewhere = Counter(operator for provider, operator in nodes if provider != home)
    if graph.stem in RECORDED:
        elsewhere += _copies(optimised)
    names = [f"{count} {operator}" for operator, count in sorted(elsewhere.items())]
    return none_of(what, names, f"of {len(nodes)} nodes elsewhere")


def _copies(optimised: Path) -> Counter[str]:
    model = onnx.load(optimised, load_external_data=False)
    return Counter(node.op_type for node in model.graph.node if node.op_type in COPIES)
