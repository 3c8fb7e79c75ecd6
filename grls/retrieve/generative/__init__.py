"""Generative retrieval: a model decodes passages under the constraint of the index.

``retriever`` joins model, index and corpus, keeps them on disk, and builds the index by several workers;
``search`` changes passages in place, chooses the search, finds the best passages for inputs of the model,
and ranks passages by the model's log-odds after reading them to their end. ``options`` are the options of
decoding. ``span_scores`` scores passages by the spans that some generators write. ``plans`` lets
retrievals join a search that runs.
"""
