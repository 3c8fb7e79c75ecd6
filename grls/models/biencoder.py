"""The bi-encoder: queries and passages as vectors, compared by the similarity of the model.

Legend: n texts, d embedding dimension.

A thin layer on sentence-transformers. The network is any ``SentenceTransformer`` from the hub or a folder, or
an encoder-decoder that embeds by its first decoder output; :mod:`grls.models.sentence_model` opens it. This
module adds what multi-step retrieval needs: the text for a query, evidence and DONE (in training and
retrieval), the fingerprint of a model, and an atomic folder with the stages of training. It does not know
corpora or search.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import numpy.typing as npt
from sentence_transformers import SentenceTransformer
from torch import Tensor

from grls.data.codec import DONE_ID, LIMITS, limits_of
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, Option
from grls.io.files import read_json, write_json
from grls.io.progress import Progress
from grls.models.base import once_each
from grls.models.load.build import TRAINING, Loaded, read_stages
from grls.models.load.generators import Pretrained
from grls.models.load.opening import packaged_encoder, refuse_missing_folder
from grls.models.load.sentence_folder import MODULES
from grls.models.option_names import Kind, Similarity
from grls.models.sentence_model import (
    COSINE,
    DEFAULT_TOKENS,
    DOT,
    FirstDecoderOutput,
    Role,
    TextNetwork,
    done_and_evidence,
    kind_of,
    open_network,
)
from grls.models.text_encoder import TextEncoder, together

log = logging.getLogger(__name__)

STAGE = "biencoder"
"""The name of the training of a bi-encoder in the list of stages of a model."""

DONE_TEXT = "DONE: the evidence is complete."
"""The text of DONE, which is embedded like a passage."""

DONE_PASSAGE = Passage(DONE_ID, DONE_TEXT)

Matrix = npt.NDArray[np.float32]


class BiEncoderModel(TextEncoder):
    """Embeds queries and passages with one network.

    Its first arguments are those of :class:`TextEncoder`.

    Args:
        learned_done: Whether the last stage taught the model when DONE follows; None: unknown. False for a
            model that was never trained as a bi-encoder.
        similarity: ``cosine``, ``dot``, ``euclidean`` or ``manhattan``; None: that of the model, else the
            cosine, as in sentence-transformers.

    Raises:
        ConfigError: As of :class:`TextEncoder`; or there is no such similarity.

    Attributes:
        similarity: How embeddings are compared. For ``cosine``, embeddings have length 1, so that their inner
            product is the cosine; ``euclidean`` and ``manhattan`` are distances with their sign turned.
    """

    what = "a bi-encoder"
    model: TextNetwork

    def __init__(
        self,
        model: SentenceTransformer,
        max_tokens: int | None = None,
        stages: Sequence[str] = (),
        learned_done: bool | None = None,
        similarity: Similarity | None = None,
    ):
        super().__init__(TextNetwork.of(model), max_tokens, stages)
        self.learned_done = learned_done if STAGE in self.stages else False
        self.similarity: Similarity = similarity or model.similarity_fn_name
        if self.similarity not in (known := get_args(Similarity)):
            raise ConfigError(f"similarity must be one of {', '.join(known)}, got {self.similarity!r}.")
        self.model.similarity_fn_name = self.similarity  # it is saved with the model

    def scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """``[q, p]`` similarities of embeddings ``[q, d]`` and ``[p, d]`` from the network."""
        return self.model.similarity(*(part[:, : self.model.truncate_dim] for part in (queries, passages)))

    @classmethod
    def load(
        cls,
        source: str,
        kind: Kind = "auto",
        device: str = "auto",
        max_tokens: int | None = None,
        similarity: Similarity | None = None,
    ) -> Self:
        """Open a bi-encoder, or make one from an encoder-decoder.

        Args:
            source: Folder or hub name. ``all-MiniLM-L6-v2`` is the model of the extra ``local-models``.
            kind: ``sentence``: a model of sentence-transformers (or an encoder, with mean pooling); ``st5``:
                an encoder-decoder, embedding by its first decoder output; ``auto``: by the content of the
                source.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` uses a GPU if there is one.
            max_tokens: The longest text in tokens; None: as in training.
            similarity: ``cosine``, ``dot``, ``euclidean`` or ``manhattan``; None: that of the model. A model
                of sentence-transformers that names none compares by the cosine, and a line says so.

        Raises:
            ConfigError: There is no such model, it is of another kind, or the device does not exist.
        """
        refuse_missing_folder(source)
        folder = packaged_encoder(source)
        if kind == "auto":
            kind = kind_of(folder)
        if kind == "st5" and not (Path(folder) / MODULES).is_file():
            spec, file = Pretrained(folder), Path(folder) / LIMITS
            limit = max_tokens
            if not limit and file.is_file():  # the longest input of a generator that grls trained
                limit = limits_of(read_json(file), file, "train the model again, or remove the file").input
            encoder = cls.from_generator(spec.load(), limit, spec.stages(), similarity or "dot")
        else:
            stages = read_stages(folder)
            network = open_network(folder)
            if similarity is None and network._similarity_fn_name is None:
                log.warning(
                    "%s names no similarity, so embeddings are compared by the cosine, the default of "
                    "sentence-transformers. The option similarity sets another (dot, euclidean, manhattan).",
                    source,
                )
            learned_done, evidence_words = done_and_evidence(folder)
            encoder = cls(network, max_tokens, stages, learned_done, similarity)
            encoder.evidence_words = evidence_words
            if kind == "st5" and not isinstance(encoder.model[0], FirstDecoderOutput):
                dense = Option("kind", "dense", python='kind="sentence"')
                raise ConfigError(
                    f"{source} is a model of sentence-transformers, not of kind st5: index it with {dense}."
                )
        return encoder.to(device)

    @classmethod
    def from_generator(
        cls,
        loaded: Loaded,
        max_tokens: int | None = None,
        stages: Sequence[str] = (),
        similarity: Similarity = "dot",
    ) -> Self:
        """A bi-encoder from a generator, which is not copied: same backbone, same parameters, no new weight.

        ``max_tokens`` None: texts of at most 512 tokens.
        """
        module = FirstDecoderOutput(loaded.model, loaded.tokenizer, max_tokens or DEFAULT_TOKENS)
        network = SentenceTransformer(modules=[module], device="cpu", similarity_fn_name=similarity)
        return cls(network, max_tokens, stages)

    def encode(
        self, texts: Sequence[str], role: Role, batch_size: int = 32, progress: bool | None = False
    ) -> Matrix:
        """Embeddings ``[n, d]`` of texts (of passages: :func:`passage_text`), in eval mode.

        They have length 1 if the model normalises or compares by cosine.

        Raises:
            DataError: An embedding is not finite.
        """
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        distinct, numbers = once_each(texts)

        def read(some: Sequence[str], size: int) -> Any:
            return encode(
                list(some), prompt=self._prompt(role), batch_size=size, show_progress_bar=False,
                normalize_embeddings=self.similarity == COSINE,
            )  # fmt: skip

        batch_size = together(self.model, role, distinct, batch_size, read)
        count, noun = len(distinct) - (texts[-1] == DONE_TEXT), "passages" if role == "passage" else "queries"
        with Progress(count, "embed", noun, shown=progress) as bar, self.telling(bar.update):
            embeddings = read(distinct, batch_size)
        matrix: Matrix = np.asarray(embeddings, dtype=np.float32)[numbers]
        wrong = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if len(wrong):
            raise DataError(
                f"the embedding of {texts[wrong[0]][:60]!r} is not finite ({len(wrong)} of {len(texts)} "
                "texts): the weights are damaged or overflow; use float32, or an earlier checkpoint."
            )
        return matrix

    def _identity(self) -> tuple[list[Any], list[Any]]:
        return ["biencoder-1", self.model.truncate_dim], [] if self.similarity == DOT else [self.similarity]

    def write(self, folder: Path) -> None:
        """Write to a temporary folder, which the caller renames."""
        super().write(folder)
        known = {} if self.learned_done is None else {"done": self.learned_done}
        read = {"evidence_words": self.evidence_words} if self.evidence_words else {}
        write_json(folder / TRAINING, {"stages": list(self.stages), **known, **read})
