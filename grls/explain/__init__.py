"""Why a retriever missed a passage.

Of a search that decodes passages, ``explain`` runs the searches of one model input at several widths, gathers
the facts about one query and passage, and names the cause. ``options`` holds the
options of a case. ``text`` (words) and ``page`` (HTML) show explanations. For other
searches ``standing`` says where a passage stands in the ranking. ``beams`` lists all that a search
considers, without a gold passage.
"""
