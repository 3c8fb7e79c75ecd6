"""Runs: what was retrieved for the queries of a data set.

``run`` holds a run as one value, which is loaded, saved and checked against others. ``trec`` writes and reads
TREC run files, ``results`` JSONL with the evidence text, ``manifest`` the facts of what made a run; ``save``
writes all three. ``portions`` keeps results as they come, so that a killed run goes on. ``comparable`` reads
several runs together, ``asked`` says which queries they answer, ``dev_runs`` are runs to tune on.
"""
