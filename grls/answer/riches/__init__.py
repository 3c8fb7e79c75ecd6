"""RICHES: an answer whose evidence is retrieved while it is written (arXiv 2407.00361).

``answerer`` is the method. ``options`` holds the options of keys and
prompts. ``keys`` makes and stores the keys of a corpus (the texts that may be quoted), ``propositions``
has a model write one kind of them. ``prompts`` writes the prompts, ``targets`` the training targets.
"""
