"""Training a bi-encoder by Lightning, with a loss of sentence-transformers.

``examples`` are pairs of query and passage, with hard negatives that are mined; ``data`` makes batches of
them. ``loss`` embeds these by length and keeps gold passages out of the negatives, ``dev`` measures recall.
``module`` trains with its ``options`` on the engine of the other trainings and keeps the best epoch. ``run``
reads data and model and calls it.
"""
