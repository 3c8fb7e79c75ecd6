"""RICHES: an answer whose evidence is retrieved while it is written (arXiv 2407.00361).

``answerer`` is the method, ``options`` holds the options of keys and prompts. ``keys`` makes the keys of a
corpus (the texts that may be quoted), ``keyset`` stores them in a folder, ``within`` ranks the passages under
one key. ``prompts`` writes the prompts, ``targets`` the training targets, ``page`` shows answers in a
terminal or as HTML. ``written`` keeps answers as they come, ``saved`` writes them with the run of the quoted
passages. ``propositions`` (with ``proposition_prompt`` and ``proposition_file``) has a model write one kind
of key, ``proposition_work`` for a corpus, in this process or by workers.
"""
