"""Why a retriever that decodes passages did not find one.

``searches`` runs the searches of one model input at several widths, each once; ``verdict`` decides who was at
fault; ``explain`` gathers the ``facts`` of one query and passage; ``tree`` makes the beam tree of a search.
``opening`` opens the retriever, ``asks`` says what is to be explained of it, ``options`` are those of a case.
They are shown by ``text`` (terminal), ``picture`` (SVG) and ``page`` (HTML); ``summary`` counts the verdicts
of a whole split.
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
