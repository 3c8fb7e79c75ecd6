"""One metric a file: a plain function over lists, and the class by which ``evaluate.load`` finds it.

Each file states its convention. Rankings: ``sequence_recall``, ``complete_recall``, ``seen_unseen``,
``hits``, ``answer_recall``. Chains: ``set_f1``, ``path_match``, ``hop_hits``,
``exact_chain``, ``done_missing``, ``graph_success``. Both: ``known_number``. Answers:
``answer_f1``, ``novel_f1``, ``autoais``. Means and cut-offs of all: ``averages``.

Arguments of all: lists with one item a query, in the same order of queries. ``retrieved`` holds passage ids,
best first (those of a chain in hop order, without DONE), ``gold`` gold passage ids, ``accepted`` answers or
paths, ``ks`` cut-offs. Values are means over queries in [0, 1], by the name of the metric.
"""
