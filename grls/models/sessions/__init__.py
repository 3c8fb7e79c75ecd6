"""The memory for several queries that are decoded at the same time.

``memory`` has the attention function and the cache of grls. ``forest`` keeps the trees of tokens, ``trees``
the keys and values of such trees (CPU), ``grid`` the keys and values of beams side by side (GPU).
``attention`` selects the implementation of attention in transformers.
"""
