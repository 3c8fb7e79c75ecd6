"""Programs: a language model and our retrieval, put together to answer.

``riches`` is retrieval interlaced with generation (arXiv 2407.00361): ``keys`` makes what may be quoted from
a corpus, ``keyset`` keeps it in a folder, ``within`` tells the passages of one key apart, ``prompts`` makes
what the model is told, ``targets`` what it should have written, ``view`` something to look at.
``propositions`` (with ``proposition_prompt`` and ``proposition_file``) has a model write one kind of key.
``query_form`` says how a query generator reads and writes, ``pseudo_queries`` has it ask about passages and
chains of them, ``round_trip`` keeps what leads back.
``dsp/`` is demonstrate-search-predict, on DSPy.
"""
