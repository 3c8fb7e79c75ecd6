"""Generative retrieval: a model decodes passages under the constraint of the index.

``retriever`` joins model, index and corpus; ``build`` makes a folder of a trained model and a corpus.
``options`` says how it decodes, ``decoders`` by which search. ``passages`` is what may be found and how it
changes in place, ``folder`` what is on disk. ``span_scores`` makes passages of the spans that some generators
write; ``rescore`` ranks by what the model says of passages that it has read to their end.
"""
