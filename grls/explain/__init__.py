"""Why a retriever missed a passage.

Of a search that decodes passages, ``explain`` runs the searches of one model input at several widths, each
once, gathers the facts about one query and passage, and names the cause; ``tree`` makes the beam tree of a
search. ``asks`` selects queries, gold passages and hops, and ``options`` holds the options of a case.
``text`` (words) and ``page`` (HTML) show explanations; ``text`` also counts the verdicts of a whole split.
For other searches ``standing`` says where a passage stands in the ranking, for one query or a whole split.
``losses`` says why answers that quote are wrong.
``beams`` lists all that a search considers, without a gold passage.
"""
