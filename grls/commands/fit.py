"""``grls fit``: from a data set to a tuned retriever, in the time that there is."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

from grls.fitting.options import FIRST_LINE, FitOptions
from grls.fitting.splits import read_data


def fit_command(data: str, *, output: str, plan: bool = False, **options: Any) -> None:
    """Make the best retriever for a data set, in the time that there is.

    Starts with retrievers that need no training; while time is left, it trains, tunes and fuses better ones.
    Dev queries decide which is best. OUTPUT opens at any time, also after a kill, as the best retriever so
    far. At the end OUTPUT/report.html compares all of them, OUTPUT/README.md is a model card. Called again
    with the same data, a run goes on with all that is done: `--budget +30m` gives it more time, `--keep NAME`
    chooses another candidate.

    Args:
        data: Data set folder in BEIR's layout, or documents: a folder of text, Markdown, HTML, PDF and DOCX
            files. Without dev queries a part of the training queries is split
            off. Without both, and without ``writer``, nothing is trained; the result is a fusion of BM25 and
            an encoder.
        output: The folder of the run.
        plan: Print what data, machine and models are and which stages there would be, and end.
        options: The options of :class:`~grls.fitting.options.FitOptions`.
    """
    begun, chosen = monotonic(), FitOptions(**options)
    print(FIRST_LINE, flush=True)
    source = read_data(Path(data), chosen)  # its faults are told before torch comes
    from grls.fitting.run import fit_dataset, plan_dataset

    if plan:
        print(plan_dataset(source, output, chosen))
    else:
        fit_dataset(source, output, chosen, begun=begun)
