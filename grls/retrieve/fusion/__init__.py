"""Fusion: ``fuse`` makes one ranking of several, ``retriever`` asks several retrievers and fuses what they
find, ``runs`` fuses runs that were retrieved already, and ``cut`` ends a ranking where the expected F1 of its
set is highest.
"""
