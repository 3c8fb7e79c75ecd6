"""One metric a file: a plain function over lists, and the ``evaluate.Metric`` that wraps it.

Import the function in-process; ``evaluate.load`` the file from elsewhere. Importing reads nothing and
asks no server. Every average is over queries (macro), so every query weighs the same.
"""
