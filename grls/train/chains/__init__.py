"""Training on chains of hops: a query and all its evidence at once.

``examples`` are the chains, ``data`` their LightningDataModule, ``collate`` makes tensors, ``module`` is the
LightningModule, ``loss`` its losses. ``targets`` are distributions over passages (``span_targets``: over
their spans). ``teacher`` distils a retriever into them, and ``prior`` trains the generator beside one.
``decisions`` turns targets into distributions over tokens at every prefix of the trie. ``token_trees``
(causal models) and ``hop_batches`` (sequence-to-sequence models) lay out the hops of a query with little
padding. ``mining`` finds hard negatives, ``proposals`` draws passages to rescore. Measures on dev: the
callbacks of :mod:`grls.train.stages`.
"""
