"""Texts as vectors of their tokens.

Legend: d dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sentence_transformers import MultiVectorEncoder

from grls.errors import DataError
from grls.models.base import once_each
from grls.models.biencoder import Matrix
from grls.models.load.build import read_stages
from grls.models.sentence_model import PlainTexts, Role, open_library_model, reader_of
from grls.models.text_encoder import TextEncoder


class LateNetwork(PlainTexts, MultiVectorEncoder):
    """A model of one vector a token."""


class LateTexts(TextEncoder):
    """Encodes queries and passages as vectors of their tokens.

    Args:
        model: The network.
        max_tokens: Longest passage, see :class:`~grls.models.text_encoder.TextEncoder`; the
            limit of queries is the model's.
        stages: See there.

    Attributes:
        similarity: ``maxsim`` or ``meanmaxsim``.
    """

    what = "a multi-vector encoder"

    def __init__(self, model: MultiVectorEncoder, max_tokens: int | None = None, stages: Sequence[str] = ()):
        reader: Any = reader_of(model, "document")
        super().__init__(
            LateNetwork.of(model), max_tokens or getattr(reader, "document_length", None), stages
        )
        if getattr(reader, "document_length", None) is not None:
            reader.document_length = self.max_tokens
        self.similarity = str(model.similarity_fn_name)

    @classmethod
    def load(cls, source: str, device: str = "auto", max_tokens: int | None = None) -> Self:
        """Open a model of the library.

        Args:
            source: Folder or hub name.
            device: ``cpu``, ``cuda``, …; ``auto`` takes a GPU where there is one.
            max_tokens: Longest passage in tokens; None: what the model says.

        Raises:
            ConfigError: There is no such model, or it is something else.
        """
        network = open_library_model(MultiVectorEncoder, source, cls.what)
        return cls(network, max_tokens, read_stages(source)).to(device)

    def limit(self, role: Role) -> int:
        """The longest text that is read as a whole, in tokens; a model may read less of a query."""
        reader = self.reader(role)
        expanded = getattr(reader, "query_expansion", None) or {}
        own = getattr(reader, "query_length", None)
        if expanded.get("strategy") == "fixed":
            own = expanded["length"]
        return int(own) if role == "query" and own is not None else self.max_tokens

    def encode(self, texts: Sequence[str], role: Role, batch_size: int) -> list[Matrix]:
        """``[tokens, d]`` vectors of each text, float32.

        Raises:
            DataError: A vector is not finite.
        """
        if not texts:
            return []
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        distinct, numbers = once_each(texts)
        found = encode(
            distinct, prompt=self._prompt(role), batch_size=batch_size, show_progress_bar=False,
            convert_to_numpy=True,
        )  # fmt: skip
        made = [np.asarray(one, dtype=np.float32).reshape(-1, self.dimension) for one in found]
        wrong = [text for text, one in zip(distinct, made, strict=True) if not np.isfinite(one).all()]
        if wrong:
            raise DataError(
                f"a vector of {wrong[0][:60]!r} is not finite ({len(wrong)} of {len(distinct)} such): the "
                "weights are damaged or overflow; use float32, or an earlier checkpoint."
            )
        return [made[number] for number in numbers]

    def _identity(self) -> tuple[list[Any], list[Any]]:
        return ["multi-vector-1"], [self.similarity]
