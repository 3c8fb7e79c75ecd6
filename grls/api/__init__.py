"""The library as users call it: ``grls.load(folder).search("…")``, and what leads there.

``opening`` opens a retriever, makes BM25 and fusions, and makes searchers of models. ``searcher`` is a
retriever of any kind as users hold it: its search, composition, tuning, updates and upload. ``streaming``
gives the hops of a query as they are found, and answers requests that come in at the same time as a batch.
``explaining`` says why passages are found. All calls check their arguments at one door
(:mod:`grls.io.arguments`). Temporary folders go with their object; errors name the object instead.

``fit`` makes the best retriever for a corpus within a budget of time; ``experiment`` compares systems.
``identify`` makes identifiers of a corpus; ``training`` trains generators and bi-encoders by recipes.
"""
