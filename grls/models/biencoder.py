"""The bi-encoder: queries and passages as vectors, compared by inner product or cosine.

Legend: n texts, d embedding dimension.

A thin layer on sentence-transformers. The network is any ``SentenceTransformer`` from the hub or a folder, or
an encoder-decoder that embeds by its first decoder output (:mod:`grls.models.st5`);
:mod:`grls.models.sentence_model` opens it. This module adds what multi-step retrieval needs: the text for a
query, evidence and DONE (in training and retrieval), the fingerprint of a model, and an atomic folder with
the stages of training. It does not know corpora or search.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sentence_transformers import SentenceTransformer, SimilarityFunction
from sentence_transformers.util import cos_sim, dot_score
from torch import Tensor

from grls.data.codec import DONE_ID
from grls.data.types import Passage
from grls.errors import ConfigError, DataError
from grls.io.files import write_json
from grls.io.progress import Progress
from grls.models.base import once_each
from grls.models.load.build import TRAINING, Loaded, Pretrained, read_stages
from grls.models.load.sentence_folder import MODULES
from grls.models.load.sources import packaged_encoder, refuse_missing_folder
from grls.models.sentence_model import (
    COSINE,
    DOT,
    Kind,
    TextNetwork,
    evidence_words_of,
    input_limit,
    kind_of,
    learned_done_of,
    open_network,
    similarity_of,
)
from grls.models.st5 import FirstDecoderOutput
from grls.models.text_encoder import DEFAULT_TOKENS, Role, TextEncoder

STAGE = "biencoder"
"""The name of the training of a bi-encoder in the list of stages of a model."""

DONE_TEXT = "DONE: the evidence is complete."
"""The text of DONE, which is embedded like a passage."""

DONE_PASSAGE = Passage(DONE_ID, DONE_TEXT)

Matrix = npt.NDArray[np.float32]


class BiEncoderModel(TextEncoder):
    """Embeds queries and passages with one network.

    Args:
        model: The network; its device and precision are kept.
        max_tokens: The longest text in tokens, special tokens included; longer texts are cut; None: the limit
            of the model.
        stages: The training stages of the weights.
        learned_done: Whether the last stage taught the model when DONE follows; None: unknown. False for a
            model that was never trained as a bi-encoder.
        similarity: ``dot`` or ``cosine``; None: the setting of the model.

    Raises:
        ConfigError: ``max_tokens`` is more than the positions of the model, or leaves no room for a text; or
            the model compares by a distance.

    Attributes:
        similarity: How embeddings are compared, ``dot`` (the default) or ``cosine``. For ``cosine``,
            embeddings have length 1, so that their inner product is the cosine.
    """

    what = "a bi-encoder"
    model: TextNetwork

    def __init__(
        self,
        model: SentenceTransformer,
        max_tokens: int | None = None,
        stages: Sequence[str] = (),
        learned_done: bool | None = None,
        similarity: str | None = None,
    ):
        super().__init__(TextNetwork.of(model), max_tokens, stages)
        self.learned_done = learned_done if STAGE in self.stages else False
        self.compare_by(similarity or model._similarity_fn_name or DOT)

    def compare_by(self, similarity: str) -> None:
        """Set the similarity; :meth:`save` writes it with the model.

        Raises:
            ConfigError: The similarity is neither ``dot`` nor ``cosine``.
        """
        if similarity not in (DOT, COSINE):
            raise ConfigError(
                f"the model compares by {similarity!r} (similarity_fn_name of its "
                f"config_sentence_transformers.json), but passages are searched by {DOT!r} or {COSINE!r}: "
                "take another model."
            )
        self.similarity = similarity
        self.model.similarity_fn_name = SimilarityFunction(similarity)

    def scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """``[q, p]`` similarities of embeddings ``[q, d]`` and ``[p, d]`` from the network."""
        rows, columns = (part[:, : self.model.truncate_dim] for part in (queries, passages))
        compare: Tensor = (cos_sim if self.similarity == COSINE else dot_score)(rows, columns)
        return compare

    @classmethod
    def load(
        cls, source: str, kind: Kind = "auto", device: str = "auto", max_tokens: int | None = None
    ) -> Self:
        """Open a bi-encoder, or make one from an encoder-decoder.

        Args:
            source: Folder or hub name. ``all-MiniLM-L6-v2`` is the model of the extra ``local-models``.
            kind: ``sentence``: a model of sentence-transformers (or an encoder, with mean pooling); ``st5``:
                an encoder-decoder, embedding by its first decoder output; ``auto``: by the content of the
                source.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` uses a GPU if there is one.
            max_tokens: The longest text in tokens; None: as in training.

        Raises:
            ConfigError: There is no such model, it is of another kind, or the device does not exist.
        """
        refuse_missing_folder(source)
        folder = packaged_encoder(source)
        if kind == "auto":
            kind = kind_of(folder)
        if kind == "st5" and not (Path(folder) / MODULES).is_file():
            spec = Pretrained(folder)
            made = cls.from_generator(spec.load(), max_tokens or input_limit(folder), spec.stages())
        else:
            stages = read_stages(folder)
            network = open_network(folder)
            made = cls(network, max_tokens, stages, learned_done_of(folder), similarity_of(folder, network))
            made.evidence_words = evidence_words_of(folder)
            if kind == "st5" and not isinstance(made.model[0], FirstDecoderOutput):
                raise ConfigError(f"{source} is a model of sentence-transformers; use kind sentence.")
        return made.to(device)

    @classmethod
    def from_generator(
        cls, loaded: Loaded, max_tokens: int | None = None, stages: Sequence[str] = ()
    ) -> Self:
        """A bi-encoder from a generator: same backbone, same number of parameters, no new weight.

        Args:
            loaded: The result of :meth:`grls.models.load.build.GeneratorSpec.load`; the model is not copied.
            max_tokens: The longest text in tokens; None: 512.
            stages: The training stages of the weights.
        """
        module = FirstDecoderOutput(loaded.model, loaded.tokenizer, max_tokens or DEFAULT_TOKENS)
        network = SentenceTransformer(modules=[module], device="cpu", similarity_fn_name="dot")
        return cls(network, max_tokens, stages)

    def on_device(self, features: dict[str, Any]) -> dict[str, Any]:
        """The result of :meth:`features` on the model's device."""
        device = self.model.device
        return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in features.items()}

    def encode_queries(
        self, texts: Sequence[str], batch_size: int = 32, progress: bool | None = False
    ) -> Matrix:
        """Embeddings ``[n, d]`` of query texts, in eval mode.

        They have length 1 if the model normalises or compares by cosine.

        Raises:
            DataError: An embedding is not finite.
        """
        return self._encode(texts, "query", batch_size, progress)

    def encode_passages(self, texts: Sequence[str], batch_size: int = 32, progress: bool = False) -> Matrix:
        """Embeddings ``[n, d]`` of passage texts (:func:`passage_text`); see :meth:`encode_queries`."""
        return self._encode(texts, "passage", batch_size, progress)

    def _encode(self, texts: Sequence[str], role: Role, batch_size: int, progress: bool | None) -> Matrix:
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        distinct, numbers = once_each(texts)
        with Progress(len(distinct), "embed", "texts", shown=progress) as bar, self.telling(bar.update):
            embeddings = encode(
                distinct, prompt=self._prompt(role) or "", batch_size=batch_size, show_progress_bar=False,
                normalize_embeddings=self.similarity == COSINE,
            )  # fmt: skip
        matrix: Matrix = np.asarray(embeddings, dtype=np.float32)[numbers]
        wrong = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if len(wrong):
            raise DataError(
                f"the embedding of {texts[wrong[0]][:60]!r} is not finite ({len(wrong)} of {len(texts)} "
                "texts): the weights are damaged or overflow; use float32, or an earlier checkpoint."
            )
        return matrix

    def _identity(self) -> tuple[list[Any], list[Any]]:
        return ["biencoder-1", self.model.truncate_dim], [COSINE] if self.similarity == COSINE else []

    def write(self, folder: Path) -> None:
        """Write to a temporary folder, which the caller renames."""
        super().write(folder)
        known = {} if self.learned_done is None else {"done": self.learned_done}
        compared = {} if self.similarity == DOT else {"similarity": self.similarity}
        read = {"evidence_words": self.evidence_words} if self.evidence_words else {}
        write_json(folder / TRAINING, {"stages": list(self.stages), **compared, **known, **read})
