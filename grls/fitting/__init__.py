"""``grls fit``: the whole way from a data set to a tuned retriever, chosen for data, machine and time.

``options`` are what a user may choose. ``facts`` describes the data, ``machine`` the machine, ``models`` the
models that a bi-encoder and a generator begin with. ``plan`` is what is done: the stages with their times,
and what is skipped and why.
"""
