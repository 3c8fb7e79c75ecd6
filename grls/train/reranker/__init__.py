"""Training a reranker of documents (arXiv 2302.00083).

``run`` makes the examples (:class:`grls.answer.ralm.reranker.RerankExample`): written by a language model
beforehand, or made of the hops of a data set. ``module`` is the LightningModule, with its batches and loss.
"""
