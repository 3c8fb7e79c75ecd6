"""Generative retrieval for long sequences."""

__version__ = "0.1.0"
