"""Query generation (doc2query): pseudo-queries for passages without queries.

``data`` holds its training pairs and their LightningDataModule.
``generate`` (with its ``options``) writes queries for passages and chains, and keeps those that lead back
to their passage; ``questions`` are those of an instructed language model. ``written`` does so into a
journal, within a limit of tokens, and tells what came of it. Tensors come from
:mod:`grls.train.riches`, for targets without quotes; the measure on dev is the loss.
"""
