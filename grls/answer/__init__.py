"""Answers: a language model and a retriever.

``direct`` answers from what was retrieved for the question, or from nothing; ``iterative`` asks follow-up
questions and retrieves for each. ``prompts`` holds what they are told, ``dialogue`` writes few-shot prompts,
``writer`` has a model go on from prompts, many at once, and ``room`` says which prompts are too long.
``questions`` are those of a data set. ``opening`` opens the retriever that they read from, ``finished`` is
one that looks up a finished run. ``kept`` lets a killed run go on, ``records`` writes down what was read,
``saved`` saves answers and the run of what was read, ``options`` says how a model is asked. ``riches/``
interlaces retrieval with writing, ``ralm/`` reads text with documents, ``dsp/`` is demonstrate-search-
predict.
"""
