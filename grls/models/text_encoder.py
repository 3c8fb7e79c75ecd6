"""The common base of all encoders of queries and passages.

The network is a model of sentence-transformers. It reads a text up to its limit, with the prompt of the
text's role. This class makes one text of query and evidence, counts what is cut, moves the network to a
device, and computes its fingerprint. Subclasses open a network (``load``), and know its output (``encode``:
a vector, a sparse vector, vectors of tokens) and how texts are compared (``similarity``):
:class:`grls.models.biencoder.BiEncoderModel` and those of other kinds of retrievers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any, Self, get_args

import numpy as np
import torch
from sentence_transformers.base import BaseModel
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from grls.data.codec import foreign_ids, reset_tokenizer, tokenizer_fingerprint
from grls.data.evidence import excerpt
from grls.data.types import Passage
from grls.errors import ConfigError
from grls.io.files import atomic_folder
from grls.io.locks import exclusive
from grls.io.progress import counted
from grls.models.load.language import model_fingerprint
from grls.models.load.opening import write_encoder
from grls.models.load.sentence_folder import MODULES
from grls.models.option_names import Numbers
from grls.models.precision import move
from grls.models.sentence_model import DEFAULT_TOKENS, TASKS, Role, cuts, positions_of, reader_of, readers_of

log = logging.getLogger(__name__)

UNLIMITED = 2**30
"""The limit, in tokens, of a model that reads a text of any length as a whole."""

_PROMPTS: dict[Role, tuple[str, ...]] = {"query": ("query",), "passage": ("document", "passage", "corpus")}
"""The names of the prompts of a role; as in sentence-transformers, the first that a model has counts."""


def passage_text(passage: Passage) -> str:
    """Title and text of a passage as one text."""
    return " ".join(part for part in (passage.title, passage.text) if part)


class TextEncoder:
    """A network that reads queries and passages.

    Args:
        model: The network; its device and precision are kept.
        max_tokens: The longest text in tokens, special tokens included; longer texts are cut; None: the limit
            of the model.
        stages: The training stages of the weights.

    Raises:
        ConfigError: ``max_tokens`` is more than the positions of the model, or leaves no room for a text.
    """

    what = "an encoder"
    """The name of the class in errors."""

    evidence_words = 0
    """The words of each retrieved passage that a query text includes (:mod:`grls.data.evidence`); 0: all."""

    model: Any

    similarity: str
    """How encoded texts are compared, as sentence-transformers says: ``cosine``, ``dot``, ``maxsim``, …"""

    def __init__(self, model: BaseModel, max_tokens: int | None = None, stages: Sequence[str] = ()):
        self.model = model
        self.stages = tuple(stages)
        readers = readers_of(model)
        limits = {
            reader: int(min(reader.max_seq_length or DEFAULT_TOKENS, positions_of(reader), UNLIMITED))
            if cuts(reader)
            else UNLIMITED
            for reader in readers
        }
        chosen = max_tokens is not None and max_tokens != max(limits.values())
        if chosen and not any(map(cuts, readers)):
            kind = type(readers[0]).__name__
            log.warning("A limit of %s tokens has no effect: %s reads texts of any length.", max_tokens, kind)
        for reader in filter(cuts, readers):
            limit = max_tokens if max_tokens is not None and chosen else limits[reader]
            most, markers = positions_of(reader), _markers(reader)
            if not markers < limit <= most:
                raise ConfigError(
                    f"max_tokens of {limit} cannot work: {counted(markers, 'special token')} need room "
                    "beside a text, and the model has "
                    f"{'any number of' if most == math.inf else f'{most:,.0f}'} positions. Choose another "
                    "limit, and index again what was indexed with this one."
                )
            limits[reader] = reader.max_seq_length = limit
            if isinstance(reader, SparseStaticEmbedding):
                tokenizer: Any = reader.tokenizer
                tokenizer.model_max_length = limit  # by which it cuts
        self._limits = {role: limits[self.reader(role)] for role in TASKS}
        self.max_tokens = max(limits.values())

    @classmethod
    def load(cls, source: str, *, device: str = "auto", max_tokens: int | None = None) -> Self:
        """Open a model on a device; a folder or a hub name.

        Raises:
            ConfigError: There is no such model, it is of another kind, or the device does not exist.
        """
        raise NotImplementedError

    def encode(self, texts: Sequence[str], role: Role, batch_size: int) -> Any:
        """The encoded texts, in their order and in the form of the encoder.

        Raises:
            DataError: A number of the output is not finite.
        """
        raise NotImplementedError

    def to(self, device: str = "auto", precision: str = "float32") -> Self:
        """Move the network; returns this encoder.

        Raises:
            ConfigError: The device does not exist, or the precision is neither float32 nor bfloat16.
        """
        if precision not in get_args(Numbers):
            raise ConfigError(f"{self.what} computes in float32 or bfloat16, not in {precision!r}.")
        move(self.model, device, precision)
        return self

    @property
    def tokenizer(self) -> Any:
        """The network's tokenizer; of two towers, that of the queries."""
        return self.reader("query").tokenizer

    def reader(self, role: Role) -> Any:
        """The module of the network that reads the texts of a role."""
        return reader_of(self.model, TASKS[role])

    @property
    def dimension(self) -> int:
        """Length d of a vector."""
        return int(self.model.get_embedding_dimension() or 0)

    def limit(self, role: Role) -> int:
        """The longest text that is not cut, in tokens, special tokens and prompt included."""
        return self._limits[role]

    def query_text(self, query: str, evidence: Sequence[Passage] = ()) -> str:
        """A query and the passages retrieved so far, in order, as one text.

        The query comes first and is never changed. If the text is longer than the limit of a query, the
        oldest evidence is dropped. The newest passage stays, even if its end will be cut.
        """
        parts = [passage_text(excerpt(query, passage, self.evidence_words)) for passage in evidence]
        text = " ".join([query, *parts])
        while len(parts) > 1 and self.tokens(text) > self.limit("query"):
            parts = parts[1:]
            text = " ".join([query, *parts])
        return text

    def tokens(self, query: str) -> int:
        """Length of a query text in tokens, prompt and special tokens included."""
        return self._lengths([query], "query")[0]

    def _lengths(self, texts: Sequence[str], role: Role) -> list[int]:
        """Lengths of texts in tokens, with prompt and special tokens."""
        reader, prompt = self.reader(role), self._prompt(role)
        tokenizer, around = reader.tokenizer, _markers(reader)
        if isinstance(tokenizer, Tokenizer):  # of static embeddings
            rows = tokenizer.encode_batch([prompt + text for text in texts], add_special_tokens=False)
            return [len(row.ids) for row in rows]
        if not isinstance(tokenizer, PreTrainedTokenizerBase):  # of words
            return [len(tokenizer.tokenize(prompt + text)) for text in texts]
        if prompt and self.model.marked:  # the special tokens of the prompt are no text
            with exclusive(tokenizer):
                around += len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
            prompt = ""
        return [len(ids) + around for ids in foreign_ids(tokenizer, [prompt + text for text in texts])]

    def features(self, texts: Sequence[str], role: Role) -> dict[str, Any]:
        """Model input of texts (tensors on the CPU), with the prompt of the model for the role."""
        return dict(self.model.preprocess(list(texts), prompt=self._prompt(role), task=TASKS[role]))

    def _prompt(self, role: Role) -> str:
        """The prompt before a text, that of sentence-transformers; empty if there is none."""
        names = [
            *(name for name in _PROMPTS[role] if name in self.model.prompts),
            self.model.default_prompt_name,
        ]
        return self.model.prompts.get(names[0]) or ""

    def count_cut(self, passages: Sequence[str]) -> int:
        """The number of passage texts that are longer than the limit and are cut."""
        if not passages:
            return 0
        return sum(length > self.limit("passage") for length in self._lengths(passages, "passage"))

    def cut_notice(self, cut: int, passages: int, option: str) -> str:
        """The warning that ``cut`` of the passages are cut; ``option`` sets the limit."""
        most, most_read = positions_of(self.reader("passage")), self.limit("passage")
        remedy = f"raise {option}" if most == math.inf else f"raise {option}, to {most:.0f} at most"
        if most_read >= most:
            remedy = "the model reads no more, so split them into shorter ones"
        return (
            f"{cut:,} of {counted(passages, 'passage')} are longer than {counted(most_read, 'token')}, and "
            f"their ends are not read: {remedy}."
        )

    def telling(self, decided: Callable[[int], object]) -> AbstractContextManager[None]:
        """A context in which ``decided`` is called with the number of texts after each batch."""
        return telling(self.model, decided)

    def fingerprint(self) -> str:
        """SHA-256 of everything that affects the output: weights, modules, tokenizer, prompts, length."""
        identity, compared = self._identity()
        parts = [*identity, self.max_tokens, self.evidence_words, *compared]
        parts += [[self._prompt(role), reading(self.reader(role))] for role in TASKS]
        parts.append(model_fingerprint(self.model))
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()

    def _identity(self) -> tuple[list[Any], list[Any]]:
        """For the fingerprint: name and settings of the encoder; settings of the comparison."""
        raise NotImplementedError

    def save(self, folder: str | Path) -> None:
        """Write model, tokenizer and training stages to a folder, atomically; :meth:`load` opens it.

        Raises:
            ConfigError: The folder exists and holds something else.
            WriteError: The disk is full or the folder cannot be written.
        """
        with atomic_folder(folder, MODULES) as new:
            self.write(new)

    def write(self, folder: Path) -> None:
        """Write to a temporary folder, which the caller renames."""
        for reader in readers_of(self.model):
            reset_tokenizer(reader.tokenizer)
        write_encoder(self.model, folder)


def reading(reader: Any) -> list[Any]:
    """The settings by which a module splits and cuts a text."""
    names = ("truncation_side", "model_input_names", "chat_template")
    tokenizer = reader.tokenizer
    return [tokenizer_fingerprint(tokenizer), *(getattr(tokenizer, name, None) for name in names)]


_trying: set[int] = set()
"""The threads that try a model, whose texts are not counted."""


def together(
    model: Any, task: str, inputs: Sequence[Any], size: int, read: Callable[[Sequence[Any], int], Any]
) -> int:
    """How many inputs a model can read together: ``size``, or 1 if it also reads what pads a batch.

    That is tried once for each task, with the first text of several. Such models are convolutions over words,
    models that read no mask (FNet), and causal models with learned positions, which are padded on the left.

    Args:
        model: The network, which keeps the result.
        task: The kind of the inputs.
        inputs: Texts, or pairs of texts.
        size: The number of inputs that the caller wants to read together.
        read: The output for inputs, so many of them together.
    """
    padded = model.__dict__.setdefault("grls_padded", {})
    if task not in padded and len(inputs) > 1 and size > 1:
        first = inputs[0]
        *query, text = first if isinstance(first, tuple) else (first,)
        short, long = (rest if not query else (*query, rest) for rest in (text[:16], " ".join([text] * 9)))
        _trying.add(get_ident())
        try:
            alone, beside = read([short], 1)[:1], read([short, long], 2)[:1]
        except ValueError:  # no token to pad with
            padded[task] = True
        else:
            pair = (rows.toarray() if hasattr(rows, "toarray") else rows for rows in (alone, beside))
            one, other = map(np.asarray, pair)
            close = max(1e-3, 4 * torch.finfo(model.dtype or torch.float32).eps) * np.abs(one).max(initial=0)
            padded[task] = one.shape != other.shape or np.abs(one - other).max(initial=0) > close
        finally:
            _trying.discard(get_ident())
        if padded[task]:
            log.warning(
                "the model also reads what pads a batch, so each text is read alone, which is slower."
            )
    return 1 if padded.get(task) else size


@contextmanager
def telling(network: BaseModel, decided: Callable[[int], object]) -> Iterator[None]:
    """A context in which ``decided`` is called with the number of inputs after each batch of a network."""
    thread = get_ident()

    def report(_: Any, __: Any, output: Any) -> None:
        if get_ident() == thread and thread not in _trying:  # not another search of the same model
            names = ("scores", "sentence_embedding", "token_embeddings")
            decided(len(next((output[name] for name in names if name in output), ())))

    hook = network.register_forward_hook(report)
    try:
        yield
    finally:
        hook.remove()


def _markers(reader: Any) -> int:
    """The number of special tokens that a module puts around a text."""
    if not isinstance(reader.tokenizer, PreTrainedTokenizerBase) or isinstance(reader, SparseStaticEmbedding):
        return 0
    return int(reader.tokenizer.num_special_tokens_to_add())
