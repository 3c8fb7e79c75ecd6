"""How good are runs and answers?

``evaluate`` scores a run with every metric that applies, also for each type of question and each hop;
``metrics/`` holds our metrics, ``measures`` the field's standard measures by ir_measures, and which of them a
run that was cut off can tell. ``significance`` tests whether two runs differ by chance, measure by measure.
``answers`` scores answers, or files of them, and their evidence (``options`` holds the options). ``examples``
shows single queries, ``misses`` says of what kind a miss is. ``ruletaker`` is the language of RuleTaker-Open,
and ``graph`` finds the paper's four errors in its chains.

A judged query without an answer scores 0; it is never skipped. DONE is not a passage here.
"""
