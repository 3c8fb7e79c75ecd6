"""``grls fit``: from a data set to a tuned retriever, in the time that there is."""

from __future__ import annotations

from typing import Any

from grls.fitting.options import FitOptions


def fit(data: str, *, output: str, plan: bool = False, **options: Any) -> None:
    """Make the best retriever for a data set, in the time that there is.

    Looks at the data, the machine and the models that can be had, measures a few steps of each training, and
    prints a plan with the time of every stage, and what is left out for want of time.

    Args:
        data: Data set folder in BEIR's layout, with queries to learn from and dev queries.
        output: The folder of the run.
        plan: Print the plan, and do nothing else.
        options: The options of :class:`~grls.fitting.options.FitOptions`.
    """
    from grls.fitting.planner import make_plan
    from grls.io.logs import quiet

    quiet()
    chosen = FitOptions(**options)
    print(make_plan(data, output, chosen).text())
