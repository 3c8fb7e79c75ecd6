"""Builds the array index in bounded memory.

``stream`` sorts parts of the corpus on disk, in ``.npy`` files that grow at their end, and merges them
directly into the files of the index.
"""
