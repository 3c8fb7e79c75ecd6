"""The bi-encoder: queries and passages as vectors, compared by inner product or cosine.

Legend: n texts, d embedding dimension.

A thin layer on sentence-transformers: the network is a ``SentenceTransformer``, any one from a hub or folder,
or an encoder-decoder by its first decoder output (:mod:`grls.models.st5`); :mod:`grls.models.sentence_model`
opens it. Here is what it lacks for
multi-step retrieval: how query, evidence and DONE become text (training and retrieval take it from here),
what identifies a model, and an atomic folder with the stages of training. It knows nothing of corpora or
search.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import SentenceTransformer, SimilarityFunction
from sentence_transformers.util import cos_sim, dot_score
from torch import Tensor
from transformers import PreTrainedConfig

from grls.data.codec import DONE_ID, foreign_ids, reset_tokenizer, tokenizer_fingerprint
from grls.data.types import Passage
from grls.errors import ConfigError, DataError
from grls.io.files import atomic_folder, write_json
from grls.io.progress import Progress
from grls.models.load.build import TRAINING, Loaded, Pretrained, read_stages
from grls.models.load.sentence_folder import MODULES
from grls.models.load.settings import settings_of
from grls.models.load.sources import packaged_encoder, refuse_missing_folder
from grls.models.precision import warn_of_emulation
from grls.models.sentence_model import (
    COSINE,
    DOT,
    Kind,
    TextNetwork,
    input_limit,
    kind_of,
    learned_done_of,
    open_network,
    positions_of,
    similarity_of,
)
from grls.models.st5 import FirstDecoderOutput

STAGE = "biencoder"
"""What a training of a bi-encoder is called among the stages that a model has gone through."""

DONE_TEXT = "DONE: the evidence is complete."
"""What stands for DONE among the passages: it is embedded like any other."""

DONE_PASSAGE = Passage(DONE_ID, DONE_TEXT)

DEFAULT_TOKENS = 512
"""Longest text where neither the caller nor the model names a limit, in tokens."""

Role = Literal["query", "passage"]
Matrix = npt.NDArray[np.float32]

_PROMPTS: dict[Role, tuple[str, ...]] = {"query": ("query",), "passage": ("document", "passage", "corpus")}


def passage_text(passage: Passage) -> str:
    """Title and text of a passage as one text; DONE is :data:`DONE_PASSAGE`."""
    return " ".join(part for part in (passage.title, passage.text) if part)


class BiEncoder:
    """Embeds queries and passages with one network.

    Args:
        model: The network; it is used where it is, in the precision it has.
        max_tokens: Longer texts are cut, in tokens, special tokens included; None: what the model says.
        stages: The training stages that the weights have gone through.
        learned_done: Whether the last of them taught the model when DONE follows; None: not known. A model
            that was never trained as a bi-encoder has not learned it.
        similarity: What embeddings are compared by; None: what the model says.

    Raises:
        ConfigError: ``max_tokens`` is more than the model has positions for, or leaves no room for a text; or
            the model compares by a distance.

    Attributes:
        similarity: What the model compares embeddings by, ``dot`` or ``cosine``; where it says nothing,
            ``dot``. Embeddings of a model that compares by cosine have length 1, so that their inner product
            is the cosine.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        max_tokens: int | None = None,
        stages: Sequence[str] = (),
        learned_done: bool | None = None,
        similarity: str | None = None,
    ):
        self.model = TextNetwork.of(model)
        self.stages = tuple(stages)
        self.learned_done = learned_done if STAGE in self.stages else False
        self.compare_by(similarity or model._similarity_fn_name or DOT)
        most = positions_of(model)
        self.max_tokens = int(max_tokens or min(model.max_seq_length or DEFAULT_TOKENS, most))
        if not self._markers < self.max_tokens <= most:
            raise ConfigError(
                f"max_tokens of {self.max_tokens} cannot work: {self._markers} special tokens need room "
                f"beside a text, and the model has {most} positions. Choose another one, and index anew what "
                "was indexed with this."
            )
        model.max_seq_length = self.max_tokens

    def compare_by(self, similarity: str) -> None:
        """Compare by another similarity, which :meth:`save` writes with the model.

        Raises:
            ConfigError: It is neither ``dot`` nor ``cosine``.
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
        """``[q, p]`` similarities of embeddings ``[q, d]`` and ``[p, d]`` as the network gives them."""
        rows, columns = (part[:, : self.model.truncate_dim] for part in (queries, passages))
        compare: Tensor = (cos_sim if self.similarity == COSINE else dot_score)(rows, columns)
        return compare

    @classmethod
    def load(
        cls, source: str, kind: Kind = "auto", device: str = "auto", max_tokens: int | None = None
    ) -> Self:
        """Open a bi-encoder, or make one of an encoder-decoder.

        Args:
            source: Folder or hub name. ``all-MiniLM-L6-v2`` finds the one that the extra ``local-models``
                installs.
            kind: ``sentence``: a model of sentence-transformers (or an encoder, which it pools by the mean);
                ``st5``: an encoder-decoder by its first decoder output; ``auto``: what the source is.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU where there is one.
            max_tokens: Longest text in tokens; None: what the model was trained with.

        Raises:
            ConfigError: There is no such model, it is not of that kind, or the device is not there.
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
            if kind == "st5" and not isinstance(made.model[0], FirstDecoderOutput):
                raise ConfigError(f"{source} is a model of sentence-transformers; use kind sentence.")
        return made.to(device)

    @classmethod
    def from_generator(
        cls, loaded: Loaded, max_tokens: int | None = None, stages: Sequence[str] = ()
    ) -> Self:
        """The bi-encoder of a generator: same backbone, same number of parameters, no new weight.

        Args:
            loaded: What a :class:`~grls.models.load.build.GeneratorSpec` loads; the model is used, not
                copied.
            max_tokens: Longest text in tokens; None: 512.
            stages: The training stages that the weights have gone through.
        """
        module = FirstDecoderOutput(loaded.model, loaded.tokenizer, max_tokens or DEFAULT_TOKENS)
        network = SentenceTransformer(modules=[module], device="cpu", similarity_fn_name="dot")
        return cls(network, max_tokens, stages)

    def to(self, device: str = "auto", precision: str = "float32") -> Self:
        """Move the network; returns this bi-encoder.

        Raises:
            ConfigError: The device is not there, or the precision is neither float32 nor bfloat16.
        """
        if precision not in ("float32", "bfloat16"):
            raise ConfigError(f"a bi-encoder embeds in float32 or bfloat16, not in {precision!r}.")
        where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        try:
            self.model.to(torch.device(where), getattr(torch, precision))
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"cannot use device {where!r} ({reason}); choose cpu, or a GPU that is there."
            ) from error
        if precision == "bfloat16":
            warn_of_emulation(torch.device(where), "precision float32")
        return self

    @property
    def tokenizer(self) -> Any:
        """The network's tokenizer."""
        return self.model.tokenizer

    @property
    def dimension(self) -> int:
        """Length d of an embedding."""
        return int(self.model.get_embedding_dimension() or 0)

    def query_text(self, query: str, evidence: Sequence[Passage] = ()) -> str:
        """A query and the passages found so far, in order, as one text.

        The query stands first and is never touched. Where the whole is longer than ``max_tokens``, the oldest
        evidence goes; the newest stays even where its end will be cut.
        """
        parts = [passage_text(passage) for passage in evidence]
        text = " ".join([query, *parts])
        while len(parts) > 1 and self.tokens(text) > self.max_tokens:
            parts = parts[1:]
            text = " ".join([query, *parts])
        return text

    def tokens(self, query: str) -> int:
        """Length of a query's text in tokens, its prompt and special tokens included."""
        text = (self._prompt("query") or "") + query
        return len(foreign_ids(self.tokenizer, [text])[0]) + self._markers

    @property
    def _markers(self) -> int:
        return int(self.tokenizer.num_special_tokens_to_add())

    def features(self, texts: Sequence[str], role: Role) -> dict[str, Any]:
        """Model input of texts (tensors on the CPU), with the prompt that the model has for the role."""
        task = "query" if role == "query" else "document"
        return dict(self.model.preprocess(list(texts), prompt=self._prompt(role), task=task))

    def _prompt(self, role: Role) -> str | None:
        """What stands before a text: of the names that the role goes by, the first with a prompt."""
        return next((self.model.prompts[p] for p in _PROMPTS[role] if self.model.prompts.get(p)), None)

    def count_cut(self, passages: Sequence[str]) -> int:
        """How many passage texts are longer than ``max_tokens``, so that their ends are not embedded."""
        if not passages:
            return 0
        prompt = self._prompt("passage") or ""
        rows = foreign_ids(self.tokenizer, [prompt + text for text in passages])
        return sum(len(ids) + self._markers > self.max_tokens for ids in rows)

    def cut_notice(self, cut: int, passages: int, option: str) -> str:
        """What to tell of passages that are cut.

        Args:
            cut: How many are (:meth:`count_cut`).
            passages: Of how many.
            option: What the limit is called where the reader can set it.
        """
        most = positions_of(self.model)
        remedy = f"raise {option}" if most == math.inf else f"raise {option}, to {most:.0f} at most"
        if self.max_tokens >= most:
            remedy = "the model reads no more, so split them into shorter ones"
        return (
            f"{cut:,} of {passages:,} passages are longer than {self.max_tokens} tokens, and their ends are "
            f"not read: {remedy}."
        )

    def embed(self, features: dict[str, Any]) -> Tensor:
        """Embeddings ``[n, d]`` of what :meth:`features` made, on the model's device and with gradients."""
        device = self.model.device
        moved = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in features.items()}
        embedding: Tensor = self.model(moved)["sentence_embedding"]
        return embedding

    def encode_queries(
        self, texts: Sequence[str], batch_size: int = 32, progress: bool | None = False
    ) -> Matrix:
        """Embeddings ``[n, d]`` of query texts, in eval mode; of length 1 where the model normalises
        or compares by cosine.

        Raises:
            DataError: An embedding is not finite.
        """
        return self._encode(texts, "query", batch_size, progress)

    def encode_passages(self, texts: Sequence[str], batch_size: int = 32, progress: bool = False) -> Matrix:
        """Embeddings ``[n, d]`` of passage texts (:func:`passage_text`), as :meth:`encode_queries`."""
        return self._encode(texts, "passage", batch_size, progress)

    def _encode(self, texts: Sequence[str], role: Role, batch_size: int, progress: bool | None) -> Matrix:
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        with Progress(len(texts), "embed", "texts", shown=progress) as bar, self.telling(bar.update):
            found = encode(
                list(texts), prompt=self._prompt(role) or "", batch_size=batch_size, show_progress_bar=False,
                normalize_embeddings=self.similarity == COSINE,
            )  # fmt: skip
        matrix: Matrix = np.asarray(found, dtype=np.float32)
        wrong = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if len(wrong):
            raise DataError(
                f"the embedding of {texts[wrong[0]][:60]!r} is not finite ({len(wrong)} of {len(texts)} "
                "such): the weights are damaged or overflow; use float32, or an earlier checkpoint."
            )
        return matrix

    @contextmanager
    def telling(self, decided: Callable[[int], object]) -> Iterator[None]:
        """Within this block ``decided`` is called with the number of texts of each batch that is embedded."""

        def told(_: Any, given: Any, output: Any) -> None:
            ids = given[0].get("offsets", given[0].get("input_ids"))  # a static model has its texts in a row
            decided(0 if ids is None else len(ids))

        hook = next(iter(self.model)).register_forward_hook(told)
        try:
            yield
        finally:
            hook.remove()

    def fingerprint(self) -> str:
        """SHA-256 of everything an embedding depends on: weights, modules, tokenizer, prompts, length."""
        digest = hashlib.sha256()
        parts: list[Any] = ["biencoder-1", self.max_tokens, self.model.prompts, self.model.truncate_dim]
        parts += [[type(module).__name__, _settings(module)] for module in self.model]
        parts += [COSINE] if self.similarity == COSINE else []
        parts.append(tokenizer_fingerprint(self.tokenizer))
        digest.update(json.dumps(parts, sort_keys=True, default=str).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).cpu().numpy().data)
        return digest.hexdigest()

    def settings(self) -> list[dict[str, Any]]:
        """Of each network (:func:`grls.models.load.settings.settings_of`)."""
        configs = (getattr(part, "config", None) for part in self.model.modules())
        return [settings_of(config.to_dict()) for config in configs if isinstance(config, PreTrainedConfig)]

    def save(self, folder: str | Path) -> None:
        """Write model, tokenizer and what its training was to a folder, atomically; :meth:`load` opens it.

        Raises:
            ConfigError: The folder exists and holds something else.
            WriteError: The disk is full or the place cannot be written.
        """
        with atomic_folder(folder, MODULES) as new:
            self.write(new)

    def write(self, folder: Path) -> None:
        """Write into a folder that the caller makes final."""
        reset_tokenizer(self.tokenizer)
        self.model.save(str(folder), create_model_card=False)
        known = {} if self.learned_done is None else {"done": self.learned_done}
        compared = {} if self.similarity == DOT else {"similarity": self.similarity}
        write_json(folder / TRAINING, {"stages": list(self.stages), **compared, **known})


def _settings(module: Any) -> Any:
    """The settings of a sentence-transformers module; those of a network are in its own config."""
    own = module.get_config_dict() if hasattr(module, "get_config_dict") else {}
    return {name: value for name, value in own.items() if name != "max_seq_length"}
