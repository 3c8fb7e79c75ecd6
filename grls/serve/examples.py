"""Queries to try, and the fields that filters can name: what a page offers to those who know no corpus."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from pathlib import Path

from grls.api.explaining import data_beside
from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, read_queries
from grls.errors import GrlsError
from grls.io.files import named_lines

_EXAMPLES, _LONGEST = 6, 300
_READ = 200
"""Passages whose metadata are looked at for fields."""


def queries_to_try(file: str | Path) -> tuple[str, ...]:
    """The queries of a file, one a line.

    Raises:
        DataError: The file is missing or empty.
    """
    return tuple(text.strip() for _, text in named_lines(Path(file), "a query a line"))


@lru_cache(maxsize=64)
def example_queries(folder: Path) -> list[str]:
    """Queries of the data set that ``grls fit`` left in a folder or beside it; none where there is none."""
    try:
        data = data_beside(folder)
        return [] if data is None else _queries_in(data)
    except (GrlsError, OSError):  # a damaged data set does not keep the retriever from its work
        return []


def _queries_in(data: Path) -> list[str]:
    """The first queries of the test split, else of the data set."""
    test = data / "qrels" / "test.tsv"
    judged = read_qrels(test).keys() if test.is_file() else None
    texts = (one.text for one in read_queries(data) if judged is None or one.id in judged)
    return list(islice((text for text in texts if len(text) <= _LONGEST), _EXAMPLES))


def fields_of(corpus: Corpus) -> list[str]:
    """Fields of the metadata of the first passages, in order."""
    objects = corpus.metadata_of(range(min(_READ, len(corpus))))
    return list(dict.fromkeys(field for one in objects for field in one))
