"""Training a language model to answer with quotes: ``data`` holds the texts with quotes and their
LightningDataModule, ``collate`` makes tensors, and ``callbacks`` answers dev queries.
The LightningModule is :class:`grls.train.core.module.GeneratorModule`.
"""
