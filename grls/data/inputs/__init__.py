"""Corpora, queries and gold passages from Python objects: lists, dicts, data frames, data sets, files.

``entries`` makes corpora and queries, of the form that they share (id, text, further fields). ``gold`` joins
queries with their gold passages, takes dev queries out of the training queries, and writes them as a data set
in BEIR's layout. ``tables`` reads the tables of other libraries, known by their methods without an import.
"""
