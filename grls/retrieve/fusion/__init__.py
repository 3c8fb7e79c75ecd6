"""Fusion: ``retriever`` searches by several retrievers and makes one ranking of theirs, ``runs`` fuses runs
that were retrieved already, and ends a ranking where the expected F1 of its set is highest.
"""
