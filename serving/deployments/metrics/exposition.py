"""Several replicas' metrics as one text: Prometheus wants each metric's lines together."""

from collections.abc import Sequence


def merged(expositions: Sequence[bytes]) -> bytes:
    """Samples of the same metric side by side, under the heading of the first replica's."""
    blocks: dict[bytes, list[bytes]] = {}
    for exposition in expositions:
        for heading, samples in _blocks(exposition):
            blocks.setdefault(heading, []).extend(samples)
    return b"".join(line for heading, samples in blocks.items() for line in (heading, *samples))


def _blocks(exposition: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Each metric's heading (its HELP and TYPE lines) and its samples."""
    blocks: list[tuple[bytes, list[bytes]]] = []
    for line in exposition.splitlines(keepends=True):
        if line.startswith(b"# HELP"):
            blocks.append((line, []))
        elif line.startswith(b"#"):
            heading, samples = blocks[-1]
            blocks[-1] = (heading + line, samples)
        else:
            blocks[-1][1].append(line)
    return blocks
