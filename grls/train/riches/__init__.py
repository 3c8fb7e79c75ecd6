"""Training a language model to answer with quotes: ``data`` holds the texts with quotes and their
LightningDataModule, ``collate`` makes tensors, ``module`` is the LightningModule with its loss, and
``callbacks`` answers dev queries.
"""
