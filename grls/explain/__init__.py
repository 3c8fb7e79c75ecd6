"""Why a retriever missed a passage.

Of a search that decodes passages, ``searches`` runs the searches of one model input at several widths, each
once; ``verdict`` names the cause; ``explain`` gathers the ``facts`` about one query and passage; ``tree``
makes the beam tree of a search. ``opening`` opens the retriever, ``asks`` selects queries, gold passages and
hops, and ``options`` holds the options of a case. ``text`` (words) and ``page`` (HTML) show
explanations; ``summary`` counts the verdicts of a whole split. For other searches ``standing`` says
where a passage stands in the ranking, and ``ranked`` does so for the command and a whole split. ``parts`` are
those of a report, for a terminal and for pages. ``beams`` lists all that a search considers, without a gold
passage.
"""

from typing import TYPE_CHECKING

from grls.io.lazy import on_demand

if TYPE_CHECKING:
    from grls.explain.explain import Explainer
    from grls.explain.facts import Explanation
    from grls.explain.verdict import Verdict

__all__ = ["Explainer", "Explanation", "Verdict"]

__getattr__ = on_demand(
    __name__,
    {
        "Explainer": "explain",
        "Explanation": "facts",
        "Verdict": "verdict",
    },
)
