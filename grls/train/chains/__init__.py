"""Training on chains of hops: a query and its evidence at once.

``examples`` are the chains, ``data`` their LightningDataModule, ``collate`` makes tensors, ``module`` is the
LightningModule, ``loss`` its losses. ``targets`` are distributions over passages (``span_targets``: over
their spans), ``teacher`` distils a bi-encoder into them, ``prior`` trains beside a bi-encoder; ``decisions``
says what they mean at every prefix of the trie. ``token_trees`` and ``hop_batches`` let a causal and a
sequence-to-sequence model read the hops of a query with little padding. ``mining`` finds hard negatives,
``proposals`` draws passages to rescore. Dev is measured by the callbacks of :mod:`grls.train.stages`.
"""
