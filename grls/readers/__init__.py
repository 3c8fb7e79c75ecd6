"""Readers: a language model conditioned on what a retriever returns."""
