"""The tables of four papers from the real data, a config a table: ``python -m benchmarks.papers``.

``__main__`` runs a config: its `grls` commands, then the table in the paper's form with the published rows
marked beside ours. ``subset`` makes the training sets of table 11. ``sets.yaml`` says how the data sets are
prepared; every other ``.yaml`` is a table or figure, or a base that several of them share (no ``table``).
"""
