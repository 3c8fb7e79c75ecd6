"""Query generation (doc2query): pseudo-queries for passages that have none.

``form`` says how a generator reads passages and writes a query; ``examples`` are its training pairs, ``data``
is their LightningDataModule, ``module`` the LightningModule. ``generate`` (by its ``options``) writes queries
for passages and chains, ``round_trip`` keeps those that lead back to their passage.

Tensors and loss are those of ``collate`` and ``loss`` of :mod:`grls.train.riches`, for targets that are text
alone; the measure on dev is the loss.
"""
