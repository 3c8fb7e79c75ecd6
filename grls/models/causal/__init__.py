"""Causal language models: ``plain`` is the readable adapter, ``slots`` the fast one, held against it."""
