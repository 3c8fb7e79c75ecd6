"""Training a bi-encoder with sentence-transformers.

``fit`` sets the ``trainer`` up and keeps the best epoch; ``options`` says how, ``examples`` what is learned.
``loss`` keeps gold passages out of the negatives, ``resume`` finds the checkpoint to go on from.
"""
