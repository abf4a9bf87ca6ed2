"""The order in which models are tried for a request that names none.

A model named as the default comes first. Of two models of the same languages, the one whose
measured quality is better on the tests that both have taken comes before the other. Of two models
that no test compares, one for general text comes before one whose texts were of a domain. Else the
order is kept.
"""

from collections.abc import Mapping, Sequence

from serving.bundle.manifest import Manifest


def in_order(manifests: Sequence[Manifest], default: str | None = None) -> list[int]:
    """Return the places of the manifests, the preferred ones first.

    default: the name of the model that comes first.
    """
    order: list[int] = []
    for place, manifest in enumerate(manifests):
        worse = (at for at, other in enumerate(order) if is_better(manifest, manifests[other]))
        order.insert(next(worse, len(order)), place)
    return sorted(order, key=lambda place: manifests[place].name != default)


def is_better(one: Manifest, other: Manifest) -> bool:
    """Return whether one has the better mean score on the tests that both have taken or, if they
    have the same task and no such test, is for general text and the other is not.
    """
    if one.serves != other.serves:
        return False
    ours, theirs = _scores(one), _scores(other)
    shared = ours.keys() & theirs.keys()
    if shared and _languages(one) == _languages(other):
        return sum(ours[test] for test in shared) > sum(theirs[test] for test in shared)
    return one.domain is None and other.domain is not None


def _languages(manifest: Manifest) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(manifest.source_languages), frozenset(manifest.target_languages)


def _scores(manifest: Manifest) -> Mapping[object, float]:
    """Return the score of each test: chrF of translations, or the bits per byte of a text, negated,
    since fewer are better.
    """
    quality = manifest.quality
    try:
        if "bits_per_byte" in quality:
            return {(quality["documents"], quality["bytes"]): -quality["bits_per_byte"]}
        return {score["origin"]: score["chrf"] for score in quality.get("scores", ())}
    except (KeyError, TypeError):  # another program has written it
        return {}
