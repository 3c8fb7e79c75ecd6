"""How good are runs and answers?

``evaluate`` scores a run with every metric that applies, also by type of question and hop; ``metrics``
holds ours, ``measures`` those of ir_measures; ``hugging_face`` gives ours to ``evaluate.load``.
``significance`` tests whether two runs differ by chance. ``answers`` scores answers and their
evidence. ``examples`` shows single queries, ``misses`` says of what kind a miss is.
``ruletaker`` is the language of RuleTaker-Open, and ``graph`` finds the paper's four errors in its chains.

A judged query without an answer scores 0; it is never skipped. DONE is not a passage here.
"""
