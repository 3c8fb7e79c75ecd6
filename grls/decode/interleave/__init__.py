"""Free text interlaced with quoted keys, in one pass (RICHES, arXiv 2407.00361).

``search`` is the beam search, with the tokens that may follow a beam, ``options`` are its options;
``markers`` finds where a key begins and ends, and the tokens that are parts of a character.
"""
