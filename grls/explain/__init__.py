"""Why a retriever missed a passage.

Of a search that decodes passages, ``explain`` runs the searches of one model input at several widths, gathers
the facts about one query and passage, and names the cause. For other searches ``standing`` says where a
passage stands in the ranking. ``text`` has both in words, ``options`` the options of a case. ``beams`` lists
all that a search considers, without a gold passage; the page of the server draws it.
"""
