"""Training on chains of hops: a query and all its evidence at once.

``examples`` are the chains, ``data`` their LightningDataModule. ``collate`` makes tensors: the hops of a
query as a tree of tokens (causal models) or with little padding (sequence-to-sequence models). ``module``
is the LightningModule with its losses. ``decisions`` turns distributions over passages into distributions
over tokens at every prefix of the trie, and ``prior`` trains the generator beside a retriever. ``rescoring``
draws passages to rescore. Measures on dev: the callbacks of :mod:`grls.train.stages`.
"""
