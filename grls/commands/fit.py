"""``grls fit``: from a data set to a tuned retriever, in the time that there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grls.fitting.options import FitOptions


def fit_command(data: str, *, output: str, plan: bool = False, **options: Any) -> None:
    """Make the best retriever for a data set, in the time that there is.

    Looks at the data, the machine and the models that can be had, measures a few steps of each training, and
    prints a plan with the time of every stage, and what is left out for want of time. Then it trains,
    indexes, tunes, compares all systems on dev queries, and keeps the best. OUTPUT opens as that retriever;
    OUTPUT/report.html compares the systems, OUTPUT/README.md is a model card. A run that was killed goes on
    when it is called again with the same data and options.

    Args:
        data: Data set folder in BEIR's layout. Without dev queries a part of the training queries is split
            off; without training queries pseudo-queries stand in for them.
        output: The folder of the run.
        plan: Print the plan, and end. OUTPUT then holds timing.json alone, the speeds that were measured: a
            run with the same options reads them, and follows this plan.
        options: The options of :class:`~grls.fitting.options.FitOptions`.
    """
    from grls.fitting.run import fit_dataset, plan_dataset
    from grls.fitting.timing import TIMING
    from grls.io.logs import quiet

    quiet()
    chosen = FitOptions(**options)
    if plan:
        print(plan_dataset(data, output, chosen).text())
        kept = Path(output) / TIMING
        print(f"\nThe speeds are kept in {kept}: a run with the same options follows this plan.")
    else:
        fit_dataset(data, output, chosen)
