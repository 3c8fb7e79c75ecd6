"""The library as users call it: ``grls.load(folder).search("…")``, and what leads there.

``searcher`` searches with a retriever of any kind; ``opening`` opens one.
"""
