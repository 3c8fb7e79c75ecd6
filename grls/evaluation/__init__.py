"""How good is what was retrieved?

``evaluate`` scores a run with every metric that applies; ``metrics/`` holds ours, ``measures`` the field's
standard ones by ir_measures. ``significance`` tests whether two runs differ by chance, ``versus`` compares
two measure by measure. ``answers`` scores answers and their evidence (``answer_files``: files of them,
``options``: how); ``examples`` shows single queries.
``ruletaker`` is the language of RuleTaker-Open and ``graph`` finds the paper's four errors in a chain of it.

A judged query without an answer scores 0; it is never skipped. DONE is not a passage here.
"""
