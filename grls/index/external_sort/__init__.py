"""Builds the array index in bounded memory.

``runs`` sorts parts of the corpus on disk, ``stream`` merges them directly into the files of the index, and
``npy`` is a ``.npy`` file that grows at its end.
"""
