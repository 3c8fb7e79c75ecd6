"""From raw files to the data layout of ``grls.corpus``: one module a data set.

Each module is a command, ``python -m data_prep.NAME --raw DIR --out DIR [--seed 0]``, and holds one
documented function ``prepare`` whose parameters are the options. It reads the raw files, says file
and line where they are malformed, and hands a ``common.Dataset`` to ``common.finish``, which refuses
a query text that stands in two splits, writes the folder whole or not at all, and prints the
statistics of the paper's table 1.

================== ==================================================================================
common             pool of de-duplicated passages, split by query, statistics, command line
entailmentbank     question + answer -> leaves; WorldTree as optional training pairs
strategyqa         question -> facts
explagraphs        belief + argument -> paths of the explanation graph
nq                 question -> gold passage, with short answers
beir               any BEIR folder, or a pair of JSONL files
ruletaker          our own generator: start facts and a goal -> a proof in forward order
================== ==================================================================================

DONE is not part of the data: training and retrieval add it.
"""
