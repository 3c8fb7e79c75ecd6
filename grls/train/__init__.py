"""Training. A folder has those of these files that it needs: ``examples`` makes input and target pairs,
``collate`` tensors, ``data`` is the LightningDataModule, ``module`` the LightningModule, ``loss`` its
loss, and ``callbacks`` measures on dev. ``biencoder`` and ``reranker`` have ``options`` of their own.

``core/`` is shared by all. ``generator/`` has the stages memorise, retrieve and chains, ``riches/`` trains
on answers with quotes, ``doc2query/`` on writing queries. ``biencoder/`` trains bi-encoders, ``reranker/``
rerankers of documents. ``options`` are the stages of ``grls train`` with all of their options, and
``training`` trains one. ``result`` is what a training returns.

Data modules use the constraint index, because the allowed tokens are part of a target. The
LightningModules never hold an index, so a checkpoint loads without it.
"""
