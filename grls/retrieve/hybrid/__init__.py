"""Hybrid decoding: other retrievers look ahead for a generator while it writes.

``options`` names them, ``priors`` are sources of scores of all passages, and one prior of several
sources, ``retriever`` searches with it; :mod:`grls.tune.priors` finds their weights.
"""
