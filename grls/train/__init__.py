"""Training. A folder has those of these files that it needs: ``examples`` makes input and target pairs,
``collate`` tensors, ``data`` is the LightningDataModule, ``module`` the LightningModule, ``loss`` its
loss, and ``callbacks`` measures on dev.

``core/`` is shared by all. ``generator/`` has the stages memorise, retrieve and chains, ``riches/`` trains
on answers with quotes, ``doc2query/`` on writing queries. ``biencoder/`` trains bi-encoders, ``reranker/``
rerankers of documents. ``options`` holds all options of ``grls train``, and ``training`` trains a stage
of a generator.

Data modules use the constraint index, because the allowed tokens are part of a target. The
LightningModules never hold an index, so a checkpoint loads without it.
"""
