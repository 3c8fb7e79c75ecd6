"""Generative retrieval: a model decodes passages under the constraint of the index.

``retriever`` joins model, index and corpus; ``folder`` builds, opens and saves them. ``options`` are the
options of decoding. ``span_scores`` scores passages by the spans that some generators write. ``plans`` lets
retrievals join a search that runs.
"""
