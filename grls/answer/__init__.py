"""Answers: a language model and a retriever.

``direct`` answers from the passages retrieved for the question, or without passages; ``iterative`` asks
follow-up questions and retrieves for each. ``prompts`` holds the texts of their prompts, ``dialogue`` writes
few-shot prompts, and ``writer`` reads the questions of a data set and continues many prompts at once.
``opening`` opens the retriever, or a finished run. ``kept`` lets a killed run go on, and saves answers as
records and as the run of the passages read; ``options`` holds the options of the readers.

``riches/`` interlaces retrieval with writing, ``ralm/`` reads text with documents, ``dsp/`` is
demonstrate-search-predict.
"""
