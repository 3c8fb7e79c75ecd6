"""Answers: a language model and a retriever.

``direct`` answers from the passages retrieved for the question, or without passages; ``iterative`` asks
follow-up questions and retrieves for each. ``prompts`` holds the texts of their prompts, ``dialogue`` writes
few-shot prompts, ``writer`` continues many prompts at once, and ``room`` finds the prompts that are too long.
``questions`` reads the questions of a data set. ``opening`` opens the retriever, ``finished`` looks up a
finished run. ``kept`` lets a killed run go on, ``records`` turns answers and their passages into records,
``saved`` saves answers with the run of the passages read, and ``options`` holds the options of the readers.
``riches/`` interlaces retrieval with writing, ``ralm/`` reads text with documents, ``dsp/`` is
demonstrate-search-predict.
"""
