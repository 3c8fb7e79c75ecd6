"""The two stages of arXiv 2204.13596, memorise and retrieve.

``examples`` are their training pairs, ``data`` their LightningDataModules (with a mix of other examples),
``module`` their LightningModules; ``callbacks`` measures constrained recall on dev and writes the best
model. ``collate`` and ``loss`` are those of :mod:`grls.train.core`, which other trainings use too.
"""
