"""Training. Each folder is one kind, with the same file names: ``examples`` says what is learned, ``collate``
makes tensors, ``data`` is the LightningDataModule, ``module`` the LightningModule, ``loss`` its loss, and
``callbacks`` what is measured on dev.

``core/`` is what all share; ``stages/`` are the two stages of arXiv 2204.13596, memorise and retrieve;
``chains/`` learns the hops of a query together, ``riches/`` to answer with quotes, ``doc2query/`` to write
queries. ``biencoder/`` trains bi-encoders, ``reranker/`` rerankers of documents. ``cli`` is the LightningCLI,
``cli_errors`` its errors in one line, ``signatures`` what its ``--help`` says, read from source.

Data modules use the constraint index (which tokens may follow is part of a target); the LightningModules
never hold one, so a checkpoint loads without it.
"""
