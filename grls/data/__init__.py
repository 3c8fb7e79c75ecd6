"""Passages, queries and judgements, and how they become tokens, words and identifiers.

``types`` holds the plain values that pass between layers. ``corpus`` holds the passages (``corpus_table``:
their Arrow table; ``columns``: their metadata by field), ``dataset`` the queries and judgements in BEIR's
layout, and their faults. ``codec`` turns text into tokens (``spelling``: texts that spell the turn markers of
a chat). ``words`` splits texts into words (``language`` guesses their language), ``sentences`` into
sentences, of which ``pseudo_queries`` makes queries; ``evidence`` makes the excerpts of passages that a hop
reads. ``identifiers`` are what a generator writes in place of whole passages; ``documents`` cuts files into
passages; ``links`` says which passage names which. ``filters`` says which passages a query may find,
and ``where`` reads a filter that is written as text.
``inputs/`` makes passages, queries and judgements of Python objects, and ``hub_data`` makes a folder of a
data set of the hub.
"""
