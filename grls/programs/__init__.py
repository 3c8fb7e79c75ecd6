"""Programs: a language model and our retrieval, put together to answer.

``riches`` is retrieval interlaced with generation (arXiv 2407.00361): ``keys`` makes what may be quoted from
a corpus, ``prompts`` what the model is told, ``targets`` what it should have written,
``view`` something to look at.
"""
