"""Training a bi-encoder with sentence-transformers.

``fit`` sets the ``trainer`` up and keeps the best epoch; ``examples`` says what a hop teaches, ``loss`` keeps
gold passages out of the negatives, ``resume`` finds the checkpoint to go on from.
"""
