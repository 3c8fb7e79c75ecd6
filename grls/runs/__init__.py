"""Runs: what was retrieved for the queries of a data set.

``trec`` writes and reads TREC run files, ``results`` JSONL with the evidence text, ``manifest`` the facts
of what made a run. ``comparable`` reads several runs together and refuses those that do not belong together.
"""
