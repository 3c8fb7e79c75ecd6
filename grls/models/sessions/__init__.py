"""The memory of several queries that are decoded at the same time.

``memory`` is an attention function and a cache of our own. ``forest`` says which token descends from which,
``trees`` keeps the keys and values of such trees (CPU), ``grid`` those of beams side by side (GPU).
``attention`` says with which implementation of transformers a model computes.
"""
