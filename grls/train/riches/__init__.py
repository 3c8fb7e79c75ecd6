"""Training a language model to answer with quotes: ``examples`` are texts with quotes, ``data`` is their
LightningDataModule, ``collate`` makes tensors, ``module`` is the LightningModule, ``loss`` its loss, and
``callbacks`` answers dev queries.
"""
