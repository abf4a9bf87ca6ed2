"""docs/layers.md has every function and class of the layers, as the code describes them."""

from tests.docs.layers_tables import tables, tables_that_stand


def test_the_tables_are_those_of_the_code() -> None:
    assert tables_that_stand() == tables(), "run `python -m tests.docs.layers_tables`"
