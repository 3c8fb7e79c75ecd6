"""Tuning a retriever folder on development queries: what it is made of, one step after another.

``options`` say what is tried, ``dev`` holds the queries and their gold, ``journal`` what was measured, so
that a killed run goes on, ``step`` what the steps share. Each step is a file: ``priors`` finds the weights of
hybrid decoding, ``rescoring`` the weight of rescoring, ``cross_encoder`` that of a cross-encoder and how many
passages it reads, ``hops`` how many hops a ranking takes (``onward``: when one more finds something),
``chains`` where chains end and how one is chosen, ``fusion`` the weights of members, ``cut`` where rankings
end. ``run`` takes the steps that a folder has, and writes what they chose into it. Of runs that were
retrieved already, ``run_weights`` finds the weights of a fusion, and ``cut_runs`` where rankings end.
"""
