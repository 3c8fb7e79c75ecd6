"""Query generation (doc2query): pseudo-queries for passages that have none.

``form`` says how a generator reads passages and writes a query; ``examples`` and ``data`` (with its
LightningModule) train it. ``generate`` (by its ``options``) writes queries for passages and
chains, ``round_trip`` keeps those that lead back to their passage.
"""
