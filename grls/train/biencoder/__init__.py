"""Training a bi-encoder by Lightning, with a loss of sentence-transformers.

``run`` reads data and model. ``examples`` are pairs of query and passage with mined hard negatives,
``data`` makes batches of them. ``loss`` embeds these by length and keeps gold passages out of the
negatives, ``dev`` measures recall. ``module`` is the LightningModule.
"""
