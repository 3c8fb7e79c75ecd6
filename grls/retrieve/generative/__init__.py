"""Generative retrieval: a model decodes passages under the constraint of the index.

``retriever`` joins model, index and corpus; ``search`` finds the best passages for inputs of the model.
``build`` makes a folder from a trained model and a corpus, ``shards`` its index by several workers.
``options`` are the options of decoding,
``decoders`` chooses the search. ``passages`` holds the passages of the index and changes them in place,
``folder`` keeps them on disk; ``span_scores`` scores
passages by the spans that some generators write, and ``span_candidates`` chooses those that are worth it;
``rescore`` ranks passages by the model's log-odds after reading them to their end. ``joining`` lets texts
join a search that runs. ``within`` finds the generator in a retriever.
"""
