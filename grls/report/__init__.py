"""The tables and the page of an experiment; the tables have the form of arXiv 2204.13596.

``systems`` makes the table of an experiment, ``growth`` that of growing corpora. For a page, ``runs`` reads,
groups and scores runs, and ``page`` puts their tables in order, and writes HTML; ``blocks`` are what a page
consists of. No run is hidden, a query without an answer scores 0 and is counted, and a metric that does not
apply to a run is a dash.
"""
