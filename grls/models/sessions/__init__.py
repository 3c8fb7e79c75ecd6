"""The memory for several queries that are decoded at the same time.

``memory`` has the attention function, the cache of grls, and the implementation of attention in transformers.
``forest`` keeps the trees of tokens, ``trees`` the keys and values of such trees (CPU), ``grid`` the keys and
values of beams side by side (GPU).
"""
