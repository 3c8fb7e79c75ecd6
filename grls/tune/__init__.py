"""Tuning a retriever folder on development queries, one step after another.

``options`` has the settings to try. ``step`` has what the steps share: the queries and their gold, and the
journal of measurements, with which a killed run goes on. ``priors`` has the steps of rankings in one step:
weights, also of finished runs, and where to cut these. ``hops`` has the steps of hops: their number, the
onward model, the end of chains and their choice. ``run`` takes the steps of a folder, and writes their
choices into it.
"""
