"""Training a reranker of documents (arXiv 2302.00083).

``module`` is the LightningModule, with its batches and loss, and trains it by its ``options``. ``run`` makes
the examples.

Its examples are :class:`grls.answer.ralm.reranker.RerankExample`, written by a language model beforehand, or
made of the hops of a data set; the reranker makes tensors of their texts, and dev is measured
by the module.
"""
