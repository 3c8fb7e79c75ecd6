"""The memory for several queries that are decoded at the same time.

Read ``memory`` first: the attention function, the cache, and trees of tokens (CPU), which ``forest``
keeps. ``grid`` keeps the tokens of beams side by side (GPU).
"""
