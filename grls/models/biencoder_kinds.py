"""The kinds of bi-encoders, for options; see :meth:`grls.models.biencoder.BiEncoderModel.load`."""

from __future__ import annotations

from typing import Literal

Kind = Literal["auto", "sentence", "st5"]
