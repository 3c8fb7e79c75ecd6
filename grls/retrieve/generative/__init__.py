"""Generative retrieval: a model decodes passages under the constraint of the index.

``retriever`` joins model, index and corpus: it keeps them on disk, changes passages in place, chooses the
search, finds the best passages for inputs of the model, and ranks them by the model's log-odds after reading
them to their end; several workers can build its index. ``options`` are the options of decoding.
``span_scores`` scores passages by the spans that some generators write. ``plans`` lets retrievals join a
search that runs.
"""
