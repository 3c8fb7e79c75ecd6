"""Training a generator: memorise, retrieve (arXiv 2204.13596), and chains, all hops of a query at once.

``examples`` are hops: a model input, and the passages that are right, and mixtures of several kinds of them.
``targets`` makes of each hop a distribution over passages or spans, and the paths on which it is learned;
``decisions`` walks these through the index. ``prior`` and ``rescoring`` are two ways to learn with other
retrievers, and ``candidates`` are hits of a run, which ``loss`` orders. ``collate`` makes tensors,
``data`` the LightningDataModules, ``module`` the LightningModules. ``callbacks`` measures constrained recall
on dev, and writes the best model.
"""
