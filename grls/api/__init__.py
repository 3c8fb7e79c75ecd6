"""The library as users call it: ``grls.load(folder).search("…")``, and what leads there.

``searcher`` searches with a retriever of any kind; ``opening`` opens one. ``streaming`` gives the hops of a
query as they are found, ``batching`` answers what comes in at the same time together, ``texts`` adds texts
and titles to hits. ``temporary`` makes the folders of retrievers that were made without a place; they go with
their object.
"""
