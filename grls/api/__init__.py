"""The library as users call it: ``grls.load(folder).search("…")``, and what leads there.

``opening`` opens a retriever, makes BM25 and fusions, and makes searchers of models. ``searcher`` is a
retriever of any kind as users hold it: its search, what it is composed to, its tuning, its updates, its
upload. ``streaming`` gives the hops of a query as they are found, and answers what comes in at the same time
together; ``texts`` adds texts and titles to hits; ``explaining`` explains what it finds.
All calls check their arguments at one door (:mod:`grls.data.inputs.arguments`). Folders of
retrievers that were made without a path go with their object, and errors name it in their place.

``fit`` makes the best retriever for a corpus, in the time that there is; ``experiment`` compares systems.
``generator`` trains generators and bi-encoders, by recipes and on the data that a user names.
"""
