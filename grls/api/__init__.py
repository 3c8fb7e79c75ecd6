"""The library as users call it: ``grls.load(folder).search("…")``, and what leads there.

``searcher`` is a retriever of any kind as users hold it, ``opening`` opens one. ``searching`` is its search:
``streaming`` gives the hops of a query as they are found, ``batching`` answers what comes in at the same time
together, ``texts`` adds texts and titles to hits.
``composing`` writes what searchers are composed to, ``fusing`` fuses several, ``tuning`` tunes one,
``updating`` changes its passages, ``explaining`` explains what it finds, and ``publishing`` uploads it. All
calls check their arguments at one door (:mod:`grls.data.inputs.arguments`).
``temporary`` makes the folders of retrievers that were made without a place; they go with their object, and
errors name it in their place.

``bm25`` is the baseline without training. ``experiment`` compares systems, and ``outcome`` is the table of
what they scored.

``fit`` makes the best retriever for a corpus, in the time that there is.

``biencoder`` and ``generator`` train models, by the ``recipes`` and on the ``training_data`` that a user
names; ``generator_stages`` are the stages of a generator. ``building`` makes searchers of models.
"""
