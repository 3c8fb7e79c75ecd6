"""Builds the array index in bounded memory.

``runs`` sorts parts of the corpus on disk, in ``.npy`` files that grow at their end; ``stream`` merges them
directly into the files of the index.
"""
