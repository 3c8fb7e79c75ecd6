"""Query generation (doc2query): pseudo-queries for passages without queries.

``form`` is the input and output of a query generator; ``examples`` are its training pairs, ``data`` is their
LightningDataModule, ``module`` the LightningModule. ``generate`` (with its ``options``) writes queries for
passages and chains, ``writing`` all those of a corpus, in this process or by workers. ``round_trip`` keeps
the queries that lead back to their passage.

Tensors and loss come from ``collate`` and ``loss`` of :mod:`grls.train.riches`, for targets without quotes;
the measure on dev is the loss.
"""
