"""How good are runs and answers?

``evaluate`` scores a run with every metric that applies; ``metrics/`` holds our metrics, ``measures`` the
field's standard measures by ir_measures, ``labels`` their names in tables. ``significance`` tests whether two
runs differ by chance, ``versus`` compares two runs measure by measure, and ``price`` says what a run loses by
its end. ``depth`` says which measures a run that was cut off can tell. ``answers`` scores answers and their
evidence (``answer_files`` scores files of answers, ``options`` holds the options); ``by_type`` scores the
types of questions apart, ``hop_scores`` what each hop found, and ``examples`` shows single queries.
``ruletaker`` is the language of RuleTaker-Open, and ``graph`` finds the paper's four errors in its chains.

A judged query without an answer scores 0; it is never skipped. DONE is not a passage here.
"""
