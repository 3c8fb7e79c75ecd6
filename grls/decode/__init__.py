"""Decodes passages under the constraint of an index.

Read ``beam`` first, the constrained beam search in a plain form. ``fast`` is the same search at full
speed, ``gpu/`` the same on a GPU, both tested against the plain one; ``slots`` and ``first_step`` are
common to these two, whose queries may join a search that runs. ``select`` normalizes logits
and picks the candidates of a step, ``scope`` decides which passages a query may find and when a prefix is
finished, ``prior`` adds the scores of priors. ``frontier`` estimates the probability of passages that
were not written. ``rescore`` scores passages that are written already, ``trace`` explains how a search
treated one. Engines of others: :mod:`grls.constraint`.

``interleave/`` writes free text and quoted keys in one pass.
"""
