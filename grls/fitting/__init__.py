"""``grls fit``: the whole way from a data set to a tuned retriever, chosen for data, machine and time.

``options`` are what a user may choose; ``plan`` is what is done: its stages, and what is skipped and why.
"""
