"""Kinds and similarities of bi-encoders, for options (:meth:`grls.models.biencoder.BiEncoderModel.load`)."""

from __future__ import annotations

from typing import Literal

Kind = Literal["auto", "sentence", "st5"]

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
"""How two vectors are compared, by the names of sentence-transformers; distances have their sign turned."""
