"""Query generation (doc2query): pseudo-queries for passages without queries.

``data`` holds its training pairs and their LightningDataModule, ``module`` the LightningModule.
``generate`` (with its ``options``) has the input and output of a query generator, and writes queries for
passages and chains, and all those of a corpus, in this process or by workers; it keeps the queries that
lead back to their passage.

Tensors and loss come from ``collate`` and ``module`` of :mod:`grls.train.riches`, for targets without
quotes; the measure on dev is the loss.
"""
