"""Encoder-decoder models: ``plain`` is the readable adapter, ``slots`` the fast one, tested against it."""
