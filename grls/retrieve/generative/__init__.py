"""Generative retrieval: a model decodes passages under the constraint of the index.

``retriever`` joins model, index and corpus, and makes a folder of them; ``search`` changes passages in place,
chooses the search, and finds the best passages for inputs of the model. ``options`` are the options of
decoding. ``folder`` keeps passages on disk, and builds the index by several workers. ``span_scores`` scores
passages by the spans that some generators write; ``rescore`` ranks passages by the model's log-odds after
reading them to their end. ``joining`` lets texts join a search that runs.
"""
