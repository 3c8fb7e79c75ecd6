"""The library as users call it: ``grls.load(folder).search("…")``, and what leads there.

``searcher`` searches with a retriever of any kind; ``opening`` opens one. ``temporary`` makes the folders of
retrievers that are kept no longer than their object.
"""
