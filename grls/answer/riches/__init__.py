"""RICHES: an answer whose evidence is retrieved while it is written (arXiv 2407.00361).

``answerer`` is the method; it keeps answers as they come, saves them with the run of the quoted passages,
and shows them in a terminal or as HTML. ``options`` holds the options of keys and prompts. ``keys`` makes
the keys of a corpus (the texts that may be quoted), and stores them in a folder. ``prompts`` writes the
prompts, ``targets`` the training targets. ``propositions`` has a model write one kind of key, also those of
a whole corpus, in this process or by workers.
"""
