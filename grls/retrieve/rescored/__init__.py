"""Rescoring with a cross-encoder: ``retriever`` rescores the passages of another retriever, ``rescore``
computes the new scores, ``options`` are the number of passages and the weight.
"""
