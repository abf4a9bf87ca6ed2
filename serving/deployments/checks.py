"""Everything that would keep a configuration from being served, found before Ray starts."""

from collections import Counter
from collections.abc import Iterator

from serving.bundle.opening import Bundle, open_bundle
from serving.config import ServerConfig, WorkerGroup
from serving.engine.graphs.session import check_device
from serving.errors import BundleError, DeviceError
from serving.text.tokenizer import Tokenizer


def problems_of(config: ServerConfig) -> list[str]:
    """One line for each problem, bundle by bundle."""
    problems: list[str] = []
    names: Counter[str] = Counter()
    for group in config.groups:
        for path in group.bundles:
            try:
                bundle = open_bundle(path)
                for tokenizer in {bundle.tokenizer_path, bundle.target_tokenizer_path}:
                    Tokenizer(tokenizer)
            except BundleError as error:
                problems += [f"{error.path}: {problem}" for problem in error.problems]
            else:
                names[bundle.manifest.name] += 1
                problems += _device_problems(group, bundle)
    problems += [
        f"model {name}: served {count} times" for name, count in names.items() if count > 1
    ]
    return problems


def _device_problems(group: WorkerGroup, bundle: Bundle) -> Iterator[str]:
    try:
        check_device(group.device, bundle.manifest.precision)
    except DeviceError as error:
        yield f"{bundle.folder}: {error}"
