"""RICHES: an answer whose evidence is retrieved while it is written (arXiv 2407.00361).

``answerer`` is the method, ``options`` says what may be quoted and told. ``keys`` makes what may be quoted
from a corpus, ``keyset`` keeps it in a folder, ``within`` tells the passages of one key apart. ``prompts`` is
what the model is told, ``targets`` what it should have written, ``page`` what was written, to look at.
``written`` keeps answers as they come, ``saved`` writes them with the run of what was quoted.
``propositions`` (with ``proposition_prompt`` and ``proposition_file``) has a model write one kind of key.
"""
