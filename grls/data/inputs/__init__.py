"""Corpora, queries and gold passages from Python objects: lists, dicts, data frames, data sets, files.

``entries`` makes corpora and queries, of the form that they share (id, text, further fields). ``gold`` joins
queries with their gold passages. ``splits`` reads all that a training or a fit learns from. ``tables``
reads the tables of other libraries, known by their methods without an import.
"""
