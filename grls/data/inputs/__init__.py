"""Corpora, queries and gold passages from Python objects: lists, dicts, data frames, data sets, files.

``corpora`` makes a corpus, ``queries`` makes queries, and ``gold`` joins queries with their gold passages;
``gold_tables`` reads those from rows. ``folders`` writes them as a data set in BEIR's layout; ``held_out``
takes dev queries out of the training queries. ``entries`` is the form that passages and queries share (id,
text, further fields); ``tables`` reads the tables of other libraries; ``values`` reads ids, paths and values
that JSON holds. ``arguments`` is the door of all public calls. No other library is imported: a table is known
by its methods.
"""
