"""``grls.fit``: from passages, queries and gold passages to the retriever that dev says is best."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from grls.api.searcher import Searcher
from grls.fitting.options import FIRST_LINE, FitOptions
from grls.fitting.splits import read_data
from grls.io.arguments import checked_options
from grls.io.files import folder_for, is_temporary, saying
from grls.retrieve.registry import Opening

if TYPE_CHECKING:
    from grls.fitting.result import Fitted


class FitResult:
    """What :func:`grls.fit` made.

    Args:
        fitted: The run.
        folder: Its folder; a temporary one goes with this object and its retriever.
        device: Where the retriever is opened.

    Attributes:
        output: The folder of the run, which opens as the retriever.
        report: The page that compares the systems.
        kept: The name of the system that is kept.
        table: System -> measure, with its split before it (``dev R@5``, ``test nDCG@10``) -> mean.
    """

    def __init__(self, fitted: Fitted, folder: str | os.PathLike[str], device: str):
        self.run, self._folder, self._device = fitted, folder, device
        self.output: Path = fitted.output
        self.report: Path = fitted.report
        self.kept: str = fitted.kept
        self.table: Mapping[str, Mapping[str, float]] = fitted.metrics

    @cached_property
    def retriever(self) -> Searcher:
        """The retriever that is kept; it opens when it is asked for first."""
        return Searcher.opened(self._folder, Opening(self._device))

    def __repr__(self) -> str:
        folder = "" if is_temporary(self.output) else repr(str(self.output))
        return f"{type(self).__name__}({folder})\n{self.run.text()}"


@checked_options(FitOptions)
def fit(
    corpus: Any,
    queries: Any = None,
    gold: Any = None,
    *,
    output: str | Path | None = None,
    budget: str | None = None,
    dev: Any = None,
    test: Any = None,
    **options: Any,
) -> FitResult:
    """Make the best retriever for a corpus: train, index, tune, compare, and keep the best on dev queries.

    Args:
        corpus: The passages: texts, dicts, a data frame, a folder of documents, …
            (:func:`~grls.data.inputs.entries.corpus_of`). A data set folder may hold the queries as well.
        queries: Queries to learn from (:func:`~grls.data.inputs.entries.queries_from`); None: those of the
            data set folder ``corpus``. Without any, and without ``writer``, nothing is trained, and what is
            kept is the fusion of BM25 and an encoder.
        gold: Their gold passages (:func:`~grls.data.inputs.gold.gold_of`).
        output: The folder of the run; one that was killed goes on when it is called again; None: a temporary
            folder, which goes with the result.
        budget: Time for everything: ``30m``, ``1h30m``, ``90s``; None: no limit.
        dev: Queries and gold passages as a pair, or the name of a split of the data set folder, to tune and
            to choose by; None: the split ``dev`` of the folder, or else a part of the queries.
        test: The same, for the report alone; None: the split ``test`` of the folder, or else the report is on
            dev.
        options: The other options of :class:`~grls.fitting.options.FitOptions`.

    Raises:
        ConfigError: An option is unknown or has a value that cannot work, a model cannot be had, or the
            budget is too short for anything.
        DataError: The data are malformed; all faults are found before any training.
        MismatchError: The folder holds a run with other data.
        WriteError: The folder cannot be written.
    """
    begun, chosen = monotonic(), FitOptions(budget, **options)
    print(FIRST_LINE, flush=True)
    folder = folder_for(output)
    with saying("fit", folder):
        data = read_data(corpus, chosen, queries, gold, dev, test)  # its faults are told before torch comes
        from grls.fitting.run import fit_dataset

        fitted = fit_dataset(data, Path(folder), chosen, begun=begun)
        return FitResult(fitted, folder, chosen.device)
