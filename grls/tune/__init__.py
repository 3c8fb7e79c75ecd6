"""Tuning a retriever folder on development queries: what it is made of, one step after another.

``options`` say what is tried. ``step`` is what the steps share: the queries and their gold, and the journal
of what was measured, so that a killed run goes on. ``priors`` has the steps of what ranks in one step: the
weights of hybrid decoding, of rescoring, of a cross-encoder and of members, and where rankings end; also of
runs that were retrieved already. ``hops`` has those of hops: how many a ranking takes, when one more finds
something, where chains end and how one is chosen. ``run`` takes the steps that a folder has, and writes
what they chose into it.
"""
