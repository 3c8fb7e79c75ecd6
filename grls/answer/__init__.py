"""Answers: a language model and a retriever.

``direct`` answers from what was retrieved for the question, or from nothing; ``iterative`` asks follow-up
questions and retrieves for each. ``prompts`` holds what they are told, ``dialogue`` writes few-shot prompts,
``writer`` has a model go on from prompts, many at once, and ``room`` says which prompts are too long.
``finished`` is a retriever that looks up a finished run; ``kept`` lets a killed run go on. ``riches/``
interlaces retrieval with writing, ``ralm/`` reads text with documents, ``dsp/`` is
demonstrate-search-predict.
"""
