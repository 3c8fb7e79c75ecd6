"""A generative retriever: model, tokenizer, index and corpus together, in memory and on disk.

Its folder holds ``model/`` (model and tokenizer as transformers writes them), ``index/``, ``corpus.jsonl``
and ``grls.json`` (format version and length limits). Single-step retrieval is here; hops are in
``multistep``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from grls.corpus import Corpus, corpus_file
from grls.decode import Decoder, FastDecoder, Found
from grls.decode.scores import ScoreMode, check_mode
from grls.errors import ConfigError, DataError
from grls.files import atomic_folder, read_json, write_json
from grls.index import ConstraintIndex, build_index, load_index
from grls.index.array import ArrayIndex
from grls.index.rows import Form, Ints
from grls.index.store import write_index
from grls.models.build import Pretrained
from grls.models.generator import Seq2SeqGenerator, check_positions
from grls.models.trees import Seq2SeqTrees, plant
from grls.retrieve.hub import upload
from grls.text import Codec, Limits
from grls.types import Hit, Query

FORMAT = 1
MANIFEST = "grls.json"


@dataclass
class SearchOptions:
    """How passages are decoded.

    Args:
        beams: Beam width.
        mode: Score mode: ``renormalized`` over the allowed tokens, or ``full`` over the vocabulary.
        early_stop: Stop at the unique prefix; None means where it is exact (``renormalized``).
        batch_size: Model inputs decoded together (slots of the fast search).
        truncate_queries: Cut queries longer than the limit instead of refusing them.
        progress: Show a progress bar.

    Raises:
        ConfigError: A count is not positive, or the score mode is unknown.
    """

    beams: int = 10
    mode: ScoreMode = "renormalized"
    early_stop: bool | None = None
    batch_size: int = 32
    truncate_queries: bool = False
    progress: bool = False

    def __post_init__(self) -> None:
        check_mode(self.mode)
        for name in ("beams", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")


class GenerativeRetriever:
    """Retrieves by decoding passages.

    Args:
        model: A transformers sequence-to-sequence model; it is used in eval mode.
        codec: Text to tokens, with the model's tokenizer.
        corpus: The passages; passage n of the index is passage n here.
        index: The constraint index of that corpus and tokenizer, DONE last.
        options: How to decode.
        stages: The training stages that the model has gone through.
    """

    def __init__(
        self,
        model: Any,
        codec: Codec,
        corpus: Corpus,
        index: ConstraintIndex,
        options: SearchOptions | None = None,
        stages: Sequence[str] = (),
    ):
        self.stages = tuple(stages)
        self.model = model
        self.codec = codec
        self.corpus = corpus
        self.index = index
        self.options = options or SearchOptions()
        self._generator = Seq2SeqGenerator(model)
        self._kept: tuple[tuple[object, ...], FastDecoder] | None = None
        check_positions(model, 0, index.rows.longest)
        if isinstance(index, ArrayIndex) and index.rows.form == "prefixes":
            index.complete = self._sequence

    def _sequence(self, passage: int) -> Ints:
        """The whole token sequence of a passage, from its text."""
        if passage == self.done:
            return self.codec.done_sequence
        return self.codec.passages([self.corpus[passage]])[0]

    @property
    def done(self) -> int:
        """The passage number of DONE."""
        return len(self.corpus)

    @classmethod
    def assemble(
        cls,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        corpus: Corpus,
        limits: Limits | None = None,
        backend: str = "array",
        options: SearchOptions | None = None,
        progress: bool = False,
        stages: Sequence[str] = (),
        form: Form = "whole",
        memory: int | None = None,
        scratch: str | Path | None = None,
    ) -> Self:
        """Build the index of a corpus for a model, as :func:`grls.index.build_index` does, around it."""
        codec = Codec(tokenizer, limits)
        index = build_index(corpus, codec, backend, progress, form, memory, scratch)
        return cls(model, codec, corpus, index, options, stages)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        device: str = "auto",
        precision: str = "float32",
        options: SearchOptions | None = None,
        verify: bool | None = None,
    ) -> Self:
        """Open a retriever folder.

        Args:
            folder: What :meth:`save_pretrained` (or ``grls index``) wrote.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU where there is one.
            precision: ``float32`` or ``bfloat16``.
            options: How to decode.
            verify: Compare the index' checksums; None: see :func:`grls.index.load_index`.

        Raises:
            DataError: The folder is no retriever, or a file in it is damaged.
            IndexFormatError: The index is damaged.
            MismatchError: The index belongs to another tokenizer or corpus.
        """
        path = Path(folder)
        if not (path / MANIFEST).is_file():
            raise DataError(f"no retriever here ({MANIFEST} is missing); make one with `grls index`.", path)
        manifest = read_json(path / MANIFEST)
        limits = _limits(manifest, path / MANIFEST)
        loaded = Pretrained(str(path / "model")).load()
        where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        model = _move(loaded.model, where, precision)
        codec = Codec(loaded.tokenizer, limits)
        corpus = Corpus.read(path)
        index = load_index(path / "index", codec.fingerprint(), corpus.fingerprint, verify)
        return cls(model, codec, corpus, index, options, manifest.get("stages", ()))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the whole retriever to one folder, atomically; an earlier one there is replaced."""
        with atomic_folder(folder, MANIFEST) as new:
            self.model.save_pretrained(new / "model")
            self.codec.tokenizer.save_pretrained(new / "model")
            (new / "index").mkdir()
            write_index(self.index, new / "index", self.codec.fingerprint(), self.corpus.fingerprint)
            self.corpus.write(corpus_file(new))
            write_json(
                new / MANIFEST,
                {
                    "format": FORMAT,
                    "kind": "generative",
                    "limits": self.codec.limits._asdict(),
                    "stages": list(self.stages),
                },
            )

    def push_to_hub(self, repository: str, folder: str | Path, private: bool = False) -> str:
        """Save to ``folder`` and upload it as a model repository; returns its address."""
        self.save_pretrained(folder)
        return upload(folder, repository, private)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Single-step retrieval: at most k distinct passages a query, best first; DONE is not among them."""
        inputs = [self.codec.model_input(tokens) for tokens in self.encode(queries)]
        found = self.search(inputs, k, [[self.done]] * len(inputs))
        return [self.hits(some) for some in found]

    def decoder(self, k: int) -> Decoder:
        """The plain beam search for k passages an input; :meth:`search` finds what it finds."""
        width = max(k, self.options.beams)
        return Decoder(self._generator, self.index, width, self.options.mode, self.options.early_stop)

    @cached_property
    def _trees(self) -> Seq2SeqTrees | None:
        """The model for the fast search, where it can be driven so."""
        return plant(self._generator)

    def _fast(self, trees: Seq2SeqTrees, k: int) -> FastDecoder:
        """The fast search for k passages an input; one is kept, with what it knows of the index."""
        plain, slots = self.decoder(k), self.options.batch_size
        new = (plain.beams, plain.mode, plain.early_stop, slots)
        if self._kept is None or self._kept[0] != new:
            fast = FastDecoder(trees, self.index, plain.beams, plain.mode, plain.early_stop, slots)
            self._kept = new, fast
        return self._kept[1]

    def encode(self, queries: Sequence[Query]) -> list[list[int]]:
        """Token ids of the queries.

        Raises:
            DataError: A query is empty, or longer than the limit and ``truncate_queries`` is not set.
        """
        ids, texts = [q.id for q in queries], [q.text for q in queries]
        return self.codec.queries(ids, texts, self.options.truncate_queries)

    def hits(self, found: Sequence[Found]) -> list[Hit]:
        """Passage numbers to ids."""
        ids = self.corpus.ids([f.passage for f in found])
        return [Hit(i, f.score) for i, f in zip(ids, found, strict=True)]

    def search(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        label: str = "retrieve",
    ) -> list[list[Found]]:
        """Decode any number of inputs.

        Args:
            inputs: Model inputs as token ids.
            k: Passages an input.
            exclude: For each input, passage numbers it may not find.
            label: What the progress bar says.
        """
        self.model.eval()
        check_positions(self.model, max((len(row) for row in inputs), default=0), 0)
        hidden = None if self.options.progress else True  # None: no bar where the output is no terminal
        with tqdm(total=len(inputs), desc=label, unit=" inputs", leave=False, disable=hidden) as bar:
            if self._trees is not None:
                return self._fast(self._trees, k).search(inputs, k, exclude, bar.update)
            return self._in_batches(inputs, k, exclude, bar)

    def _in_batches(
        self, inputs: Sequence[Sequence[int]], k: int, exclude: Sequence[Sequence[int]], bar: tqdm[Any]
    ) -> list[list[Found]]:
        """The plain search, in batches of inputs of similar length."""
        decoder, size = self.decoder(k), self.options.batch_size
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
        found: list[list[Found]] = [[] for _ in inputs]
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            results = decoder.search([inputs[i] for i in batch], k, [exclude[i] for i in batch])
            for i, result in zip(batch, results, strict=True):
                found[i] = result
            bar.update(len(batch))
        return found


def _move(model: Any, device: str, precision: str) -> Any:
    try:
        return model.to(torch.device(device), getattr(torch, precision)).eval()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"cannot use device {device!r} ({reason}); choose cpu, or a GPU that is there."
        ) from error


def _limits(manifest: Any, file: Path) -> Limits:
    """The length limits of a retriever's manifest, refused where it is not one of ours."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else manifest
        raise DataError(
            f"retriever format {found}, this version reads {FORMAT}; make it again with `grls index`.", file
        )
    try:
        return Limits(**manifest["limits"])
    except (KeyError, TypeError):
        raise DataError(
            f"expected the limits {', '.join(Limits._fields)}, got {manifest.get('limits')!r}; make it again "
            "with `grls index`.",
            file,
        ) from None
