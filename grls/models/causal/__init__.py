"""Causal language models: ``slots`` has the readable adapter, and the fast one, tested against it."""
