"""The kinds of bi-encoders, for options: what they are says :mod:`grls.models.biencoder`."""

from __future__ import annotations

from typing import Literal

Kind = Literal["auto", "sentence", "st5"]
