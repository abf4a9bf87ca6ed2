"""Writes what a GGUF file says of its model in words, as the beginning of a model card."""

from collections import Counter

from export.readers.common.files import card_of
from export.readers.gguf.container import Container


def file_card(container: Container) -> bytes:
    """Write name, kind, licence and types of tensors in Markdown, as far as the file says them."""
    path, fields = container.path, container.fields
    kinds = Counter(tensor.kind.name for tensor in container.tensors.values())
    facts = [
        f"Architecture: {fields.get('general.architecture')}",
        f"Tensors: {', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}",
    ]
    for title, key in (("Author", "organization"), ("Licence", "license"), ("Size", "size_label")):
        if value := fields.get(f"general.{key}"):
            facts.append(f"{title}: {value}")
    size = f"{path.stat().st_size / 1e6:.1f} MB"
    origin = f"Imported from the GGUF file `{path.name}` ({size})."
    return card_of(fields.get("general.name") or path.stem, origin, *facts)
