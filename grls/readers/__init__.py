"""Readers: a language model conditioned on what a Retriever returns.

``dialogue`` writes few-shot prompts, plain or in turns, for these and for the programs above; ``writer`` has
a model go on from prompts, greedily and many at once; ``prompts`` holds what readers are told. ``direct``
answers from what was retrieved for the question, or from nothing; ``iterative`` asks follow-up questions and
retrieves for each. ``finished`` is a Retriever that looks up a finished run. ``ralm/`` is in-context RALM:
text that is read, or written, with documents.
"""
