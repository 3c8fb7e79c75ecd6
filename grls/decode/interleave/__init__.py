"""Free text interlaced with quoted keys, in one pass (RICHES, arXiv 2407.00361).

``search`` is the beam search, ``options`` are its options; ``continuations`` says what may follow a beam,
``markers`` where a key begins and ends, ``characters`` which tokens are whole characters.
"""
