"""A generative retriever: model, tokenizer, index and corpus together, in memory and on disk.

Its folder holds ``model/`` (model and tokenizer as transformers writes them) and what
:mod:`grls.retrieve.folder` says. Single-step retrieval is here; hops are in ``multistep``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from grls.assess import Assessing, read_assessing
from grls.corpus import Corpus
from grls.decode import Decoder, DeviceDecoder, FastDecoder, Found
from grls.decode.device import suits
from grls.decode.leaves import Leaves
from grls.decode.prior import Prior
from grls.decode.slots import SlotDecoder
from grls.errors import ConfigError, DataError
from grls.files import atomic_folder
from grls.filters import Allow
from grls.index import ConstraintIndex, Segment, Subset, UnionIndex, build_index, merge
from grls.index.array import ArrayIndex
from grls.index.rows import Form, Ints
from grls.index.store import build_segment
from grls.models.base import Floats
from grls.models.build import Pretrained
from grls.models.causal import CausalTrees
from grls.models.generator import check_positions
from grls.models.kinds import is_causal, plain_generator, planted
from grls.models.precision import move, packed
from grls.models.seq2seq import Seq2SeqTrees
from grls.retrieve.assess import Assessor, beside_assessment
from grls.retrieve.base import check_counts, reachable
from grls.retrieve.folder import MANIFEST, read_limits, read_manifest, read_passages, write_passages
from grls.retrieve.hub import upload
from grls.retrieve.options import SearchOptions
from grls.retrieve.views import (
    PassageScores,
    Reach,
    candidates,
    hidden_views,
    ranked,
    said_of,
    spread,
    weigh,
)
from grls.text import Codec, Limits, TokenIds
from grls.types import Hit, Passage, Query
from grls.views import Views

_Result = TypeVar("_Result")


class GenerativeRetriever:
    """Retrieves by decoding passages.

    Args:
        model: A transformers model, sequence-to-sequence or causal; it is used in eval mode.
        codec: Text to tokens, with the model's tokenizer (``causal`` for a causal model).
        corpus: The passages; passage n of the index is passage n here.
        index: The constraint index of that corpus (or of its views) and tokenizer, DONE last.
        options: How to decode.
        stages: The training stages that the model has gone through.
        removed: Numbers of passages that no search finds.
        views: What it writes of a passage, where it does not write passages from their beginning.
        assessing: How the model learned to assess passages; None: it did not.
    """

    def __init__(
        self,
        model: Any,
        codec: Codec,
        corpus: Corpus,
        index: ConstraintIndex,
        options: SearchOptions | None = None,
        stages: Sequence[str] = (),
        removed: Collection[int] = (),
        views: Views | None = None,
        assessing: Assessing | None = None,
    ):
        self.removed = frozenset(removed)
        self.views = views
        self.assessing = assessing
        self.stages = tuple(stages)
        self.model = model
        self.codec = codec
        self.corpus = corpus
        self.index = index
        self.options = options or SearchOptions()
        self._generator = plain_generator(model)
        self._kept: tuple[tuple[object, ...], SlotDecoder] | None = None
        self._live: Subset | None = None
        check_positions(model, 0, index.rows.longest)
        self._complete()

    def _complete(self) -> None:
        """Let an index of unique prefixes take whole passages from the corpus."""
        if isinstance(self.index, ArrayIndex) and self.index.rows.form == "prefixes":
            self.index.complete = self._sequence

    def _sequence(self, number: int) -> Ints:
        """The whole token sequence of what is ``number`` in the index, from its text."""
        listed = self.corpus if self.views is None else self.views
        if number == len(listed):
            return self.codec.done_sequence
        return self.codec.passages(listed.passages([number]))[0]

    def sequences(self, passages: Sequence[int]) -> list[TokenIds]:
        """The token sequences of some passages, as evidence in a model input has them."""
        if self.views is None:
            return [self.index.tokens(passage) for passage in passages]
        return self.codec.passages(self.corpus.passages(passages))

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
        view_words: int | None = None,
        assessing: Assessing | None = None,
    ) -> Self:
        """Build the index of a corpus for a model, as :func:`grls.index.build_index` does, around it.

        ``view_words`` is the length of the views that the model writes; None: it writes whole passages.
        ``assessing`` is as of the constructor.
        """
        codec = Codec(tokenizer, limits, is_causal(model))
        views = None if view_words is None else Views(corpus, view_words)
        index = build_index(views or corpus, codec, backend, progress, form, memory, scratch)
        return cls(model, codec, corpus, index, options, stages, views=views, assessing=assessing)

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
            precision: See :mod:`grls.models.precision`.
            options: How to decode.
            verify: Compare the index' checksums; None: see :func:`grls.index.load_index`.

        Raises:
            DataError: The folder is no retriever, or a file in it is damaged.
            IndexFormatError: The index is damaged.
            MismatchError: The index belongs to another tokenizer or corpus.
        """
        path = Path(folder)
        manifest = read_manifest(path)
        limits = read_limits(path, manifest)
        loaded = Pretrained(str(path / "model")).load()
        where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        codec = Codec(loaded.tokenizer, limits, is_causal(loaded.model))
        corpus, index, removed, views = read_passages(path, manifest, codec, verify)
        stages = manifest.get("stages", ())
        assessing = read_assessing(manifest.get("assess"), path / MANIFEST)
        opened = cls(loaded.model, codec, corpus, index, options, stages, removed, views, assessing)
        _ = opened._trees  # tried in full precision: what int8 computes depends on its company
        move(loaded.model, where, precision)
        return opened

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the whole retriever to one folder, atomically; an earlier one there is replaced.

        Raises:
            ConfigError: It was opened with packed weights, which cannot be written.
        """
        if packed(self.model):
            raise ConfigError("its weights are packed and cannot be saved; open it in float32 to save it.")
        with atomic_folder(folder, MANIFEST) as new:
            self.model.save_pretrained(new / "model")
            self.codec.tokenizer.save_pretrained(new / "model")
            passages = (self.corpus, self._segments(), self.removed, self.views)
            write_passages(new, self.codec, *passages, self.stages, self.assessing)

    def push_to_hub(self, repository: str, folder: str | Path, private: bool = False) -> str:
        """Save to ``folder`` and upload it as a model repository; returns its address."""
        self.save_pretrained(folder)
        return upload(folder, repository, private)

    def retrieve(self, queries: Sequence[Query], k: int, allow: Allow = None) -> list[list[Hit]]:
        """Single-step retrieval: at most k distinct passages a query, best first; DONE is not among them.

        Args:
            queries: The queries.
            k: Most hits a query.
            allow: What may be found; see :class:`~grls.retrieve.base.Retriever`. Under ``renormalized``
                scores a hit has its probability among the allowed passages.

        Raises:
            DataError: A query is empty or too long, or a filter names an unknown passage.
            ConfigError: A filter cannot be used, or none of them leaves a passage.
        """
        inputs = [self.codec.model_input(tokens) for tokens in self.encode(queries)]
        allowed = self.subsets(queries, allow)
        found = self.search(inputs, k, [[self.done]] * len(inputs), allow=allowed)
        return [self.hits(some) for some in found]

    def remove(self, ids: Sequence[str]) -> None:
        """Take passages out of every search from now on; :meth:`save_pretrained` keeps that.

        Nothing is rebuilt. The passages stay in corpus and index until :meth:`merge`.

        Raises:
            DataError: An id is unknown, or its passage is removed already.
            ConfigError: No passage would be left.
        """
        gone = set(self.removed)
        for name, number in zip(ids, self.corpus.numbers(ids), strict=True):
            if number is None or number in self.removed:
                why = "is not in the corpus" if number is None else "is removed already"
                raise DataError(f"the passage {name!r} {why}, so it cannot be removed.", self.corpus.source)
            gone.add(number)
        if len(gone) == len(self.corpus):
            raise ConfigError("the last passage cannot be removed: nothing would be left to retrieve.")
        self._change(self.corpus, self.index, gone)

    def add(self, passages: Iterable[Passage] | Corpus) -> None:
        """Add passages, which every search finds from now on; :meth:`save_pretrained` keeps that.

        They are sorted into a second segment of the index; the first is left as it is until :meth:`merge`.
        The model has not memorised them: it finds what it can score well without.

        Raises:
            DataError: There is none, or an id is reserved, used twice or taken.
            ConfigError: The index holds only unique prefixes, or views.
        """
        self._refuse_views("passages cannot be added to")
        base, added = self._segments()
        base.rows.refuse_prefixes("adding passages", decoding=False)
        new = (
            passages if isinstance(passages, Corpus) else Corpus.from_passages(passages, "the added passages")
        )
        segment = build_segment(new, self.codec, base.backend, added)
        corpus = self.corpus.extended(new)
        check_positions(self.model, 0, segment.rows.longest)
        self._change(corpus, UnionIndex(base, segment), self.removed)

    def merge(self) -> None:
        """Make one segment of the index again, and drop removed passages from corpus and index for good.

        Linear in the tokens: no sequence is sorted or tokenised again, and the result is what ``grls index``
        would make. Passages keep their order, those that were added stand last.

        Raises:
            ConfigError: The index holds views, and passages were removed.
        """
        if not self.removed and isinstance(self.index, Segment):
            return
        self._refuse_views("removed passages cannot be dropped from")
        keep = np.ones(len(self.corpus) + 1, dtype=bool)
        keep[sorted(self.removed)] = False
        index = merge(self.index, keep)
        corpus = self.corpus.select(np.flatnonzero(keep[:-1]).tolist()) if self.removed else self.corpus
        self._change(corpus, index, ())

    def _refuse_views(self, what: str) -> None:
        if self.views is not None:
            raise ConfigError(
                f"{what} an index of views: make it again with `grls index` from the corpus as it is to be."
            )

    def numbers(self, passages: Sequence[int] | Ints) -> Ints:
        """What some passages (DONE among them) are in the index, their views where it holds views."""
        return np.asarray(passages, dtype=np.int64) if self.views is None else self.views.of(passages)

    def _change(self, corpus: Corpus, index: ConstraintIndex, removed: Collection[int]) -> None:
        self.corpus, self.index, self.removed = corpus, index, frozenset(removed)
        self._kept = self._live = None
        self._complete()

    def _segments(self) -> tuple[Segment, Segment | None]:
        """The index' first segment, and the second one where there is one."""
        if isinstance(self.index, UnionIndex):
            return self.index.base, self.index.added
        if not isinstance(self.index, Segment):
            raise ConfigError(f"a {type(self.index).__name__} can neither be saved nor changed.")
        return self.index, None

    def _everything(self) -> Subset | None:
        """What a search without a filter may find; None where nothing is removed."""
        if self.removed and self._live is None:
            gone = self.numbers(sorted(self.removed))
            live = np.setdiff1d(np.arange(len(self.index)), gone, assume_unique=True)
            self._live = Subset(self.index.rows, live)
        return self._live

    def subsets(self, queries: Sequence[Query], allow: Allow) -> list[Subset | None]:
        """What each query may find, DONE among it; None where it may find everything.

        Queries with equal filters share one subset, which is made once.
        """
        within = reachable(queries, allow, self.corpus, self.removed)
        rows = self.index.rows
        made = [Subset(rows, self.numbers(np.append(numbers, self.done))) for numbers in within.sets]
        return [self._everything() if place is None else made[place] for place in within.places]

    def decoder(self, k: int) -> Decoder:
        """The plain beam search for k passages an input; :meth:`search` finds what it finds."""
        width = max(k, self.options.beams)
        return Decoder(self._generator, self.index, width, self.options.mode, self.options.early_stop)

    @cached_property
    def _trees(self) -> Seq2SeqTrees | CausalTrees | None:
        """The model for the fast search, where it can be driven so."""
        return planted(self._generator)

    def _fast(self, trees: Seq2SeqTrees | CausalTrees, k: int) -> SlotDecoder:
        """The fast search for k passages an input; one is kept, with what it knows of the index."""
        plain, slots, compiled = self.decoder(k), self.options.batch_size, self.options.compile
        new = (plain.beams, plain.mode, plain.early_stop, slots, compiled, trees.device)
        if self._kept is None or self._kept[0] != new:
            self._kept = None  # a compiled search holds memory on the device: one at a time
            how = (trees, self.index, plain.beams, plain.mode, plain.early_stop, slots)
            on_device: Any = partial(DeviceDecoder, compiled=compiled)
            suited = isinstance(trees, Seq2SeqTrees) and (compiled or suits(trees.device, self.index))
            suited = suited and self.views is None  # it does not tell where it leaves off
            self._kept = new, on_device(*how) if suited else FastDecoder(*how)
        return self._kept[1]

    def _refuse_to_compile(self) -> None:
        """Refuse the option ``compile`` where no search could heed it.

        Raises:
            ConfigError: It is set, and the model or the index is of another kind.
        """
        on_grid = isinstance(self._trees, Seq2SeqTrees)
        whole = self.views is None
        if not self.options.compile or (whole and on_grid and isinstance(self.index, ArrayIndex)):
            return
        if not whole:
            why = "the generator writes views of passages, and what they weigh is not known on the device"
        elif not on_grid:
            why = f"a {type(self.model).__name__}'s decoder cannot be driven by slots"
        elif isinstance(self.index, UnionIndex):
            why = "passages were added to its index; make one segment of it with `grls update --merge true`"
        else:
            why = "its index has another backend than 'array'; make it again with `grls index`"
        raise ConfigError(f"compile=True cannot be heeded: {why}, or leave the option out.")

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
        allow: Sequence[Subset | None] = (),
        prior: Prior | None = None,
    ) -> list[list[Found]]:
        """Decode any number of inputs, and assess the best passages where the options say so.

        Args:
            inputs: Model inputs as token ids.
            k: Passages an input, at most.
            exclude: For each input, passage numbers it may not find; where passages are written whole, those
                of the same text neither.
            label: What the progress bar says.
            allow: For each input, what it may find (:meth:`subsets`); empty: everything.
            prior: What is known of the passages beforehand, its queries being these inputs; the search for
                GPUs takes none, so another one is used.

        Raises:
            ConfigError: The option ``compile`` is set where it cannot be heeded, or ``assess`` for a model
                that has not learned to.
        """
        most, asked = self.options.assess, (exclude, label, allow, prior)
        if not most:
            return self._written(inputs, k, *asked)
        self.refuse_to_assess()
        found = self._written(inputs, max(k, most), *asked)
        odds = self.assess(inputs, [[hit.passage for hit in some[:most]] for some in found])
        weight = self.options.assess_weight
        return [beside_assessment(some, own, weight)[:k] for some, own in zip(found, odds, strict=True)]

    def refuse_to_assess(self) -> None:
        """Refuse to assess with a model that has not learned to.

        Raises:
            ConfigError: It has not.
        """
        if self.assessing is None:
            raise ConfigError(
                "the generator has not learned to assess passages: train it with --data.assess and index the "
                "model that comes of it, or leave the option assess out."
            )

    def assess(self, inputs: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]) -> list[Floats]:
        """What the model says of passages when it has read them to the end (:mod:`grls.assess`).

        Args:
            inputs: Model inputs as token ids.
            passages: For each, numbers of passages; that of DONE is one, too.

        Returns:
            For each input the log-odds (nats) of its passages.

        Raises:
            ConfigError: The model has not learned to, or has too few positions.
        """
        self.refuse_to_assess()
        assert self.assessing is not None
        self.model.eval()
        parts = (self.codec, self.assessing, self.sequences, self.done, self._generator, self._trees)
        return Assessor(*parts)(inputs, passages, self.options.progress)

    def _written(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        label: str,
        allow: Sequence[Subset | None],
        prior: Prior | None,
    ) -> list[list[Found]]:
        """What the search finds; arguments as of :meth:`search`."""
        if self.views is not None:
            scores = self.weigh(inputs, k, exclude, label, allow, prior)
            return [self.ranked(some, k) for some in scores]
        allow = allow or [self._everything()] * len(inputs)

        def search(decoder: Decoder | SlotDecoder, some: Sequence[int], *more: Any) -> list[list[Found]]:
            given = [inputs[n] for n in some], k, [exclude[n] for n in some], [allow[n] for n in some]
            return decoder.search(*given, *more)

        return self._decoded(inputs, k, label, prior, search)

    def weigh(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        label: str = "retrieve",
        allow: Sequence[Subset | None] = (),
        prior: Prior | None = None,
    ) -> list[PassageScores]:
        """What a generator that writes views says of the passages that are worth ranking.

        Arguments and errors are those of :meth:`search`; the prior is over passages.

        Returns:
            Scores of candidates, with what the prior adds, for :meth:`ranked`.
        """
        if self.views is None:
            raise ConfigError("the generator writes whole passages, not views of them.")
        check_counts(k=k)
        views, rows = self.views, self.index.rows
        allow = allow or [self._everything()] * len(inputs)
        hidden = [hidden_views(views, rows, *some) for some in zip(exclude, allow, strict=True)]
        weighed = None if prior is None else spread(prior, views)

        def search(decoder: Decoder | SlotDecoder, some: Sequence[int], *more: Any) -> list[Leaves]:
            given = [inputs[n] for n in some], [hidden[n] for n in some], [allow[n] for n in some]
            return decoder.leaves(*given, *more)

        found = self._decoded(inputs, 1, label, weighed, search)
        said = None if prior is None or prior.normalized or not prior.parts else prior
        scores = []
        for query, leaves in enumerate(found):
            reach = Reach(views, rows, exclude[query], allow[query])
            shares = None if said is None else said_of(said, query, reach.every())
            some = candidates(leaves, reach, k, shares)
            own = weigh(leaves, some, reach, self.options.view_temperature)
            scores.append(own if shares is None else own.beside(shares[some]))
        return scores

    def ranked(self, scores: PassageScores, k: int) -> list[Found]:
        """The k best of the passages that :meth:`weigh` weighed."""
        return ranked(scores, self.done, self.options.view_temperature, k)

    def _decoded(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        label: str,
        prior: Prior | None,
        search: Callable[..., list[_Result]],
    ) -> list[_Result]:
        """What ``search`` finds with the fastest decoder there is for the model.

        Args:
            inputs: Model inputs as token ids.
            k: Results an input.
            label: What the progress bar says.
            prior: What is known beforehand of what the index holds.
            search: Given a decoder, numbers of inputs and its further options, what it finds for these.
        """
        self.model.eval()
        self._refuse_to_compile()
        check_positions(self.model, max((len(row) for row in inputs), default=0), self.index.rows.longest)
        hidden = None if self.options.progress else True  # None: no bar where the output is no terminal
        with tqdm(total=len(inputs), desc=label, unit=" inputs", leave=False, disable=hidden) as bar:
            if self._trees is None:
                return self._in_batches(inputs, k, prior, bar, search)
            fast = self._fast(self._trees, k)
            if isinstance(fast, DeviceDecoder) and prior is not None:  # it takes none
                fast = FastDecoder(
                    self._trees, self.index, fast.beams, fast.mode, fast.early_stop, fast.slots
                )
            return search(fast, range(len(inputs)), bar.update, prior)

    def _in_batches(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        prior: Prior | None,
        bar: tqdm[Any],
        search: Callable[..., list[_Result]],
    ) -> list[_Result]:
        """The plain search, in batches of inputs of similar length."""
        decoder, size = self.decoder(k), self.options.batch_size
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
        found: dict[int, _Result] = {}
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            weighed = None if prior is None else prior.among(batch)
            found.update(zip(batch, search(decoder, batch, None, weighed), strict=True))
            bar.update(len(batch))
        return [found[i] for i in range(len(inputs))]
