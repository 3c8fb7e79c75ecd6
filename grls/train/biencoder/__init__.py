"""Training a bi-encoder with sentence-transformers, whose ``trainer`` stands for a LightningModule.

``examples`` are pairs of query and passage, with hard negatives that are mined; ``collate`` makes tensors of
them, ``loss`` embeds them by length and keeps gold passages out of the negatives, ``dev`` measures recall.
``trainer`` trains with its ``options``, keeps the best epoch, and finds the checkpoint to resume from; its
weights are whole or in shards, all of them or adapters. ``run`` reads data and model and calls it.
"""
