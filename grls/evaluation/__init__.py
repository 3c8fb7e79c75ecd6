"""Run files, metrics and reports: how good is what was retrieved?

- ``run`` writes and reads TREC run files, for trec_eval, ir_measures and ranx; ``results`` JSONL with the
  evidence text, for people and for chains.
- ``metrics/`` holds one metric a file. Each states its convention, is a plain function over lists, and
  is wrapped as an ``evaluate.Metric``, so ``evaluate.load("…/sequence_recall.py")`` works offline.
- ``graph`` reads RuleTaker-Open passages as edges and finds the paper's four errors in a graph.
- ``evaluate`` joins them: a run file and a data set in, every metric that applies out, as a nested dict
  and as a table.

Two rules hold throughout. A judged query without an answer scores 0; it is never skipped. DONE is not a
passage here: it takes no rank and is in no TREC run.
"""
