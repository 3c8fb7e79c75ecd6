"""Answers: a language model and a retriever.

``direct`` answers from the passages retrieved for the question, or without; ``iterative`` asks follow-up
questions and retrieves for each. ``prompts`` holds their prompts, ``dialogue`` writes few-shot prompts,
``writer`` reads the questions of a data set and continues many prompts at once. ``retrievers`` opens the
retriever, or a finished run. ``written`` is an answer with its evidence; ``kept`` lets a killed run go on,
and saves answers. ``options`` holds the options.

``riches/`` interlaces retrieval with writing, ``ralm/`` reads text with documents, ``dsp/`` is
demonstrate-search-predict.
"""
