"""Rescoring by a cross-encoder: ``retriever`` ranks the passages of another retriever again, ``rescore``
computes the new scores, ``options`` say how many passages are read and what counts.
"""
