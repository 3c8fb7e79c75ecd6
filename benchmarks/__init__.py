"""Ratios against named rivals, each measured in the run that prints it.

``index`` (build, memory, disk, allowed-set step) and ``decode`` (queries a second against HF generate);
``common`` makes the synthetic corpora and prints the machine and the tables.
"""
