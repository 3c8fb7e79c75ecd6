"""The memory for several queries that are decoded at the same time.

``memory`` has the attention function, the cache of grls, the implementation of attention in transformers,
and the keys and values of trees of tokens (CPU). ``forest`` keeps the trees, ``grid`` the keys and values
of beams side by side (GPU).
"""
