"""One metric a file: a plain function over lists, and the ``evaluate.Metric`` that wraps it.

Each file states its convention. Of rankings: ``sequence_recall``, ``complete_recall``, ``seen_unseen``,
``hits``, ``answer_recall``. Of chains: ``set_f1``, ``path_match``, ``done_missing``, ``graph_success``. Of
answers: ``answer_f1``, ``autoais``. ``averages`` is what they share.
"""
