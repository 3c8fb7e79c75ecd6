"""Training a bi-encoder with sentence-transformers, whose ``trainer`` stands for a LightningModule.

``examples`` are pairs of query and passage, ``collate`` makes tensors of them, ``groups`` embeds them by
length, ``loss`` keeps gold passages out of the negatives, ``dev`` measures recall and ``callbacks`` log it.
``weights`` are whole or in shards, all of them or adapters. ``fit`` runs the trainer with its ``options`` and
keeps the best epoch; ``resume`` finds the checkpoint to resume from. ``run`` reads data and model and calls
it, with the hard negatives of ``mining``.
"""
