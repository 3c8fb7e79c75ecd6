"""Hybrid decoding: other retrievers look ahead for a generator while it writes.

``options`` names them, ``priors`` are their scores of all passages, ``retriever`` the search with them;
``tuning`` finds their weights on development queries.
"""
