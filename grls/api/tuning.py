"""Tuning the folder of a searcher on development queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grls.api.searching import Searching
from grls.data.dataset import gold_passages
from grls.data.inputs.gold import gold_of
from grls.errors import ConfigError
from grls.retrieve.base import single_steps, untuned_fingerprint
from grls.retrieve.checksums import CHECKSUMS
from grls.retrieve.spec import followed, read_spec
from grls.tune.dev import DevQueries
from grls.tune.options import TuneOptions
from grls.tune.run import tune_folder
from grls.tune.step import TuneChoice


def tune_searcher(
    searcher: Searching, queries: Any, gold: Any, options: Mapping[str, Any]
) -> list[TuneChoice]:
    """Tune the folder of a searcher; see :meth:`grls.api.searcher.Searcher.tune`."""
    grid = TuneOptions(**options)
    folder = followed(searcher.folder)
    if (folder / CHECKSUMS).is_file():
        raise ConfigError(
            f"{folder} is a download from the hub, which stays as it is: save it to a folder of your own and "
            "tune that one, as in grls.load(retriever.save(FOLDER))."
        )
    dev = _dev(searcher, queries, gold)
    opened = searcher.retriever
    if read_spec(folder).get("kind") != "hops":  # as the command opens it
        opened = single_steps(opened)
    return tune_folder(folder, dev, grid, searcher.how, untuned_fingerprint(opened))


def _dev(searcher: Searching, queries: Any, gold: Any) -> DevQueries:
    joined = gold_of(gold, queries, searcher.corpus)
    passages = [gold_passages(query, joined.qrels) for query in joined.queries]
    return DevQueries("the queries given", "dev", joined.queries, passages, searcher.corpus)
