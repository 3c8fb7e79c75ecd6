"""A search that is kept belongs to its index."""

from copy import copy
from pathlib import Path

from small_data import small_retriever, write_small

from grls.data.types import Passage, Query

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?")]


def test_a_copy_that_is_added_to_leaves_the_original_as_it_is(tmp_path: Path) -> None:
    """Both have the same decoders, which keep one search."""
    retriever = small_retriever(write_small(tmp_path / "data"))
    expected = retriever.retrieve(QUERIES, 11)
    other = copy(retriever)
    other.add([Passage("new", "the otter is proud .")])
    assert "new" in {hit.id for hits in other.retrieve(QUERIES, 11) for hit in hits}
    assert retriever.retrieve(QUERIES, 11) == expected
