"""Runs: the passages that were retrieved for the queries of a data set.

``run`` holds a run as one value, which is loaded, saved and checked against others. ``trec`` writes and
reads TREC run files, ``results`` JSONL with the evidence text. ``portions`` writes both and the facts of
what made a run, and keeps results as they come, so that a killed run goes on. ``comparable`` reads several
runs together, also to tune on, and says which queries they answer.
"""
