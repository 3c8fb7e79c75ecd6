"""Building the array index in bounded memory.

``runs`` sorts portions on disk, ``stream`` merges them straight into the files of the index, and ``npy`` is a
``.npy`` file that grows at its end.
"""
