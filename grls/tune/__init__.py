"""Tuning a retriever folder on development queries, one step after another.

``options`` has the settings to try. ``step`` has what the steps share: the queries and their gold, and the
journal of measurements, with which a killed run goes on; ``search`` how one of several settings is chosen.
``priors`` and ``weights`` have the steps of rankings in one step, also weights and cuts of finished runs;
``hops`` has the number of hops, the onward model, and the end and choice of chains. ``run`` takes the steps
of a folder, and writes their choices into it.
"""
