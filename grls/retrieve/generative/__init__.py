"""Generative retrieval: a model decodes passages under the constraint of the index.

``retriever`` joins model, index and corpus; ``search`` finds the best passages for inputs of the model.
``build`` makes a folder of a trained model and a corpus. ``options`` says how to decode, ``decoders`` by
which search. ``passages`` holds the passages that can be found and changes them in place, ``folder`` keeps
them on disk; ``earlier`` has the names that earlier versions wrote. ``span_scores`` scores passages by the
spans that some generators write; ``rescore`` ranks passages by the model's log-odds once it has read them to
their end.
"""
