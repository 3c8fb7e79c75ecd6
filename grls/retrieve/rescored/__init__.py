"""Rescoring with a cross-encoder.

``retriever`` rescores the passages of another retriever; ``options`` are their number and the weight.
"""
