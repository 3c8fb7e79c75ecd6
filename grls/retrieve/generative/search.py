"""The search of a generative retriever: from inputs of the model to the best passages.

A search decodes passages, or spans from which passages are scored, under the constraint of the index, and
rescores the best of them where the options say so. Queries and evidence become inputs in
:mod:`grls.retrieve.generative.retriever`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from grls.data.codec import Codec, TokenIds
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.spans import Spans
from grls.data.types import Hit, Passage, Query
from grls.decode import Decoder, DeviceDecoder, FastDecoder, ScoredPassage
from grls.decode.frontier import Frontier
from grls.decode.prior import Prior
from grls.decode.rescore import rescore, rescore_plain
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.index import ConstraintIndex, Segment, Subset, UnionIndex
from grls.index.array import ArrayIndex
from grls.index.build import build_segment
from grls.index.ranges import RangedIndex
from grls.index.rows import Ints
from grls.index.union import merge
from grls.io.files import exclusive
from grls.io.progress import Progress
from grls.models.base import Floats, check_positions, once_each
from grls.models.causal.slots import CausalTrees
from grls.models.head import RescoreInput, readout
from grls.models.load.kinds import plain_generator, slot_model
from grls.models.seq2seq.slots import Seq2SeqTrees
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.span_scores import (
    PassageScores,
    Reach,
    SpanRanking,
    candidates,
    hidden_spans,
    likeliest_spans,
    passage_scores,
    prior_over_spans,
    ranked,
)
from grls.retrieve.queries import check_counts, reachable

_TOGETHER = 256
"""Inputs whose passages are tokenised and rescored together."""


class DecodedPassages:
    """A corpus with its constraint index, and a model that decodes its passages.

    Passages can be removed from every search, and added after the others, without building the index again.

    It chooses the fastest decoder for the model, the index and the options: :mod:`grls.decode.gpu.search` on
    GPUs, :mod:`grls.decode.fast` elsewhere, and for a model that does not run in slots the plain beam search.

    Its arguments are those of :class:`~grls.retrieve.generative.retriever.GenerativeRetriever`.
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
        spans: Spans | None = None,
        rescore_input: RescoreInput | None = None,
        tried: bool = False,
    ):
        self.model = model
        self.codec = codec
        self.rescore_input = rescore_input
        self.options = options or SearchOptions()
        self.stages = tuple(stages)
        self._tried = tried
        self._plain = plain_generator(model, tried)
        # The options and the index of the last search in slots, and its decoder.
        self._decoder: tuple[tuple[object, ...], ConstraintIndex, FastDecoder | DeviceDecoder] | None = None
        self._live: Subset | None = None  # of a search without a filter, where passages are removed
        self._change(corpus, index, removed, spans)

    @cached_property
    def trees(self) -> Seq2SeqTrees | CausalTrees | None:
        """The model for the fast search; None: it cannot run in slots."""
        return slot_model(self._plain, self._tried)

    @property
    def reads_on(self) -> bool:
        """Whether the input of a hop is read on from where that of the hop before ended."""
        return isinstance(self.trees, CausalTrees)

    @property
    def done(self) -> int:
        """The passage number of DONE."""
        return len(self.corpus)

    @property
    def widest(self) -> int:
        """Number of passages that a search scores for any k."""
        return max(self.options.beams, self.options.rescore)

    def numbers(self, passages: Sequence[int] | Ints) -> Ints:
        """The numbers of passages (or DONE) in the index: those of their spans where it holds spans."""
        return np.asarray(passages, dtype=np.int64) if self.spans is None else self.spans.of(passages)

    def subsets(self, queries: Sequence[Query], allow: Allow) -> list[Subset | None]:
        """The part of the index that each query may retrieve, DONE included; None: everything.

        Queries with equal filters share one subset, which is made once.
        """
        if allow is None:
            return [self._everything()] * len(queries)
        within = reachable(queries, allow, self.corpus, self.removed)
        rows = self.index.rows
        filtered = [Subset(rows, self.numbers(np.append(numbers, self.done))) for numbers in within.sets]
        return [self._everything() if index is None else filtered[index] for index in within.indices]

    def encode(self, queries: Sequence[Query]) -> list[list[int]]:
        """Token ids of the queries.

        Raises:
            DataError: A query is empty, or longer than the limit and ``truncate_queries`` is not set.
        """
        ids, texts = [q.id for q in queries], [q.text for q in queries]
        return self.codec.queries(ids, texts, self.options.truncate_queries)

    def sequences(self, passages: Sequence[int]) -> list[TokenIds]:
        """The token sequences of passages, title and text."""
        if self.spans is None:
            return [self.index.tokens(passage) for passage in passages]
        return self.codec.passages(self.corpus.passages(passages))

    def hop_input(self, query: Query, tokens: Sequence[int], passages: Sequence[int]) -> list[int]:
        """The model input of a hop, as token ids.

        Args:
            query: The query.
            tokens: Its token ids (:meth:`encode`).
            passages: Numbers of the evidence so far, in order.
        """
        if self.codec.limits.evidence:
            return self.codec.model_input(
                tokens, self.codec.excerpts(query.text, self.corpus.passages(passages))
            )
        return self.codec.model_input(tokens, self.sequences(passages))

    def hits(self, ranking: Sequence[ScoredPassage]) -> list[Hit]:
        """Scored passages as hits with passage ids."""
        ids = self.corpus.ids([hit.passage for hit in ranking])
        return [Hit(name, hit.score) for name, hit in zip(ids, ranking, strict=True)]

    def search(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        label: str = "retrieve",
        subsets: Sequence[Subset | None] = (),
        prior: Prior | None = None,
    ) -> list[list[ScoredPassage]]:
        """Decode any number of inputs, and rescore the best passages if the options ask for it.

        Args:
            inputs: Model inputs as token ids.
            k: Largest number of passages for each input.
            exclude: For each input, numbers of passages that it may not retrieve; where passages are written
                whole, their copies are excluded as well.
            label: The text of the progress bar.
            subsets: For each input, the passages that it may retrieve (:meth:`subsets`); empty: all.
            prior: Prior over the passages for these inputs.

        Raises:
            ConfigError: The option ``compile`` is set where it has no effect, or ``rescore`` for a model
                that has not learned to.
        """
        depth, weight = self.options.rescore, self.options.rescore_weight
        if depth:
            self.refuse_to_rescore()
        count = max(k, depth) if depth else k
        if self.spans is not None:
            scored = self.span_scores(inputs, count, exclude, label, subsets, prior)
            rankings = [self.ranked(scores, count) for scores in scored]
        else:
            rankings = self._run(inputs, exclude, subsets, count, label, prior)
        if not depth:
            return rankings
        odds = self.rescore(inputs, [[hit.passage for hit in ranking[:depth]] for ranking in rankings])
        return [rescored(ranking, row, weight)[:k] for ranking, row in zip(rankings, odds, strict=True)]

    def refuse_to_rescore(self) -> None:
        """Refuse (ConfigError) to rescore with a model that has not learned to rescore."""
        if self.rescore_input is None:
            raise ConfigError(
                f"the generator has not learned to rescore passages: train it with {Option('data.rescore')} "
                "and index that model, or leave the option rescore out."
            )

    def rescore(self, inputs: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]) -> list[Floats]:
        """The log-odds (nats) of passages once the model has read them to the end (:mod:`grls.models.head`).

        Args:
            inputs: Model inputs as token ids.
            passages: For each input, numbers of passages; DONE may be one of them.

        Raises:
            ConfigError: The model has not learned to rescore, or has too few positions.
        """
        self.refuse_to_rescore()
        rescore_input, codec = self.rescore_input, self.codec
        assert rescore_input is not None
        odds: list[Floats] = []
        with exclusive(self.model), Progress(len(inputs), "rescore", "inputs", shown=None) as bar:
            self.model.eval()
            for start in range(0, len(inputs), _TOGETHER):
                batch = slice(start, start + _TOGETHER)
                numbers = sorted({number for row in passages[batch] for number in row} - {self.done})
                sequences = {self.done: rescore_input.read(codec.done_sequence, codec)}
                for number, sequence in zip(numbers, self.sequences(numbers), strict=True):
                    sequences[number] = rescore_input.read(sequence, codec)
                longest = max(map(len, inputs[batch]))
                check_positions(self.model, longest, max(map(len, sequences.values())))
                distinct = [once_each([tuple(sequences[n]) for n in row]) for row in passages[batch]]
                rows = [[list(sequence) for sequence in unique] for unique, _ in distinct]
                if self.trees is None:
                    distinct_odds = rescore_plain(self._plain, inputs[batch], rows, readout(codec))
                else:
                    distinct_odds = rescore(self.trees, inputs[batch], rows, readout(codec))
                odds += [values[index] for values, (_, index) in zip(distinct_odds, distinct, strict=True)]
                bar.update(len(rows))
        return odds

    def span_scores(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        label: str = "retrieve",
        subsets: Sequence[Subset | None] = (),
        prior: Prior | None = None,
    ) -> list[PassageScores]:
        """The scores of the passages that are worth ranking, for a generator that writes spans.

        Arguments and errors are those of :meth:`search`; the prior is over passages.

        Returns:
            Scores of candidates, with those of the prior, for :meth:`ranked`.

        Raises:
            ConfigError: The generator writes whole passages.
        """
        check_counts(k=k)
        searched = self._frontiers(inputs, exclude, label, subsets, prior)
        return [
            self.span_ranking(reach, k, prior, query).scores(frontier)
            for query, (frontier, reach) in enumerate(searched)
        ]

    def likeliest_spans(
        self, inputs: Sequence[Sequence[int]], k: int, exclude: Sequence[Sequence[int]], label: str
    ) -> list[list[int]]:
        """The likeliest span of each of the k best passages, for a generator that writes spans.

        Spans whose text an excluded passage holds as well are left out, and so are passages with no other
        spans, such as copies. Arguments and errors are those of :meth:`span_scores`.

        Returns:
            For each input at most k numbers of spans, that of the best passage first.
        """
        check_counts(k=k)
        rankings = []
        searched = self._frontiers(inputs, exclude, label, (), None)
        for (frontier, reach), hidden in zip(searched, exclude, strict=True):
            chosen = candidates(frontier, reach, k + len(hidden))
            spans = likeliest_spans(frontier, chosen.passages, reach, np.unique(hidden).astype(np.int64))
            scores = passage_scores(frontier, chosen, reach, self.options.span_temperature)
            span_of = dict(zip(chosen.passages.tolist(), spans.tolist(), strict=True))
            best = [span_of[hit.passage] for hit in self.ranked(scores, len(span_of))]
            rankings.append([span for span in best if span >= 0][:k])
        return rankings

    def _frontiers(
        self,
        inputs: Sequence[Sequence[int]],
        exclude: Sequence[Sequence[int]],
        label: str,
        subsets: Sequence[Subset | None],
        prior: Prior | None,
    ) -> list[tuple[Frontier, Reach]]:
        """Where the search for spans stopped for each input, and what the input may retrieve."""
        if self.spans is None:
            raise ConfigError("the generator writes whole passages, not spans of them.")
        spans, rows = self.spans, self.index.rows
        subsets = subsets or [self._everything()] * len(inputs)
        hidden = [hidden_spans(spans, rows, *pair) for pair in zip(exclude, subsets, strict=True)]
        over_spans = None if prior is None else prior_over_spans(prior, spans)
        frontiers = self._run(inputs, hidden, subsets, 1, label, over_spans)
        reaches = [Reach(spans, rows, *pair) for pair in zip(exclude, subsets, strict=True)]
        return list(zip(frontiers, reaches, strict=True))

    def span_ranking(self, reach: Reach, k: int, prior: Prior | None, query: int) -> SpanRanking:
        """Ranks passages for query ``query`` of a prior over passages, k at most."""
        return SpanRanking(reach, k, self.options.span_temperature, prior, query)

    def ranked(self, scores: PassageScores, k: int) -> list[ScoredPassage]:
        """The k best of the passages that :meth:`span_scores` scored."""
        return ranked(scores, self.done, self.options.span_temperature, k)

    def _run(
        self,
        inputs: Sequence[Sequence[int]],
        hidden: Sequence[Sequence[int]],
        subsets: Sequence[Subset | None],
        k: int,
        label: str,
        prior: Prior | None,
    ) -> list[Any]:
        """The k best passages, or the frontier of spans, by the fastest decoder for the model.

        Threads wait for each other.
        """
        subsets = subsets or [self._everything()] * len(inputs)
        with exclusive(self.model), Progress(len(inputs), label, "inputs", shown=None) as bar:
            self.model.eval()
            trees = self.trees
            if self.options.compile:
                self._refuse_to_compile()
            check_positions(self.model, max(map(len, inputs), default=0), self.index.rows.longest)
            decode: Callable[..., list[Any]]
            if trees is not None:
                slots = self._slot_decoder(trees, k)
                decode = partial(slots.search, k=k) if self.spans is None else slots.frontier
                return decode(inputs, exclude=hidden, subsets=subsets, observer=bar.update, prior=prior)
            decoder, size = self.decoder(k), self.options.batch_size
            decode = partial(decoder.search, k=k) if self.spans is None else decoder.frontier
            order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))  # batches of similar length
            results: dict[int, Any] = {}
            for start in range(0, len(order), size):
                batch = order[start : start + size]
                rows: list[Any] = [[values[n] for n in batch] for values in (inputs, hidden, subsets)]
                part = None if prior is None else prior.among(batch)
                found = decode(rows[0], exclude=rows[1], subsets=rows[2], prior=part)
                results.update(zip(batch, found, strict=True))
                bar.update(len(batch))
            return [results[i] for i in range(len(inputs))]

    def decoder(self, k: int) -> Decoder:
        """The plain beam search for k passages an input, which :meth:`search` agrees with."""
        options = self.options
        settings = max(k, options.beams), options.mode, options.early_stop, options.span_threshold
        return Decoder(self._plain, self.index, *settings)

    @property
    def takes_queries(self) -> bool:
        """Whether queries can join its search, without making a decoder."""
        return self.trees is not None and not self.options.compile

    def joining_decoder(self) -> FastDecoder | DeviceDecoder | None:
        """The search that queries can join; None: they cannot (:attr:`takes_queries`)."""
        if self.trees is None or not self.takes_queries:
            return None
        return self._slot_decoder(self.trees, 1 if self.spans is not None else max(1, self.options.rescore))

    @property
    def searched_by(self) -> str:
        """The search that it uses and its device: ``device on cuda:0``, ``fast on cpu``, ``plain on cpu``."""
        kind = "fast" if self.trees is not None else "plain"
        return f"{'device' if self._on_device(self.trees) else kind} on {self.model.device}"

    def _on_device(self, trees: Seq2SeqTrees | CausalTrees | None) -> bool:
        """Whether the search for devices is used: it is the fastest on a GPU."""
        on_gpu = trees is not None and trees.device.type == "cuda" and self.index.has_tensors
        return on_gpu or self.options.compile

    def _slot_decoder(self, trees: Seq2SeqTrees | CausalTrees, k: int) -> FastDecoder | DeviceDecoder:
        """The search in slots for k results an input: that for GPUs where it suits, else the fast one.

        It is kept, with its data about the index, until options, device or index are others.
        """
        options, on_device = self.options, self._on_device(trees)
        beams, settings = max(k, options.beams), (options.mode, options.early_stop, options.batch_size)
        key = *settings, options.span_threshold, options.compile, on_device, trees.device
        kept = self._decoder
        if kept is None or kept[0] != key or kept[1] is not self.index:
            kept = self._decoder = None  # the memory of a compiled search is freed first
            decoder: Any = partial(DeviceDecoder, compiled=options.compile) if on_device else FastDecoder
            made = decoder(trees, self.index, beams, *settings, threshold=options.span_threshold)
            kept = self._decoder = key, self.index, made
        elif kept[2].beams != beams:
            kept = self._decoder = key, self.index, kept[2].with_beams(beams)
        return kept[2]

    def _refuse_to_compile(self) -> None:
        """Refuse (ConfigError) the option ``compile`` where no search can use it."""
        if self.trees is None:
            why = f"a {type(self.model).__name__}'s decoder cannot be driven by slots"
        elif self.index.has_tensors:
            return
        else:
            why = "its index has another backend than 'array'; make it again with `grls index`"
        raise ConfigError(f"compile=True has no effect: {why}, or leave the option out.")

    def remove(self, ids: Sequence[str], adding: bool = False) -> None:
        """Remove passages from every search; saving the retriever keeps the change.

        Nothing is rebuilt. The passages stay in corpus and index until :meth:`merge`.

        Where passages are added next (``adding``), none need be left.

        Raises:
            DataError: An id is unknown, or its passage is removed already.
            ConfigError: No passage would be left.
        """
        removed = set(self.removed)
        for name, number in zip(ids, self.corpus.numbers(ids), strict=True):
            if number is None or number in self.removed:
                fault = "is not in the corpus" if number is None else "is removed already"
                raise DataError(f"the passage {name!r} {fault}, so it cannot be removed.", self.corpus.source)
            removed.add(number)
        if len(removed) == len(self.corpus) and not adding:
            raise ConfigError("the last passage cannot be removed: nothing would be left to retrieve.")
        self._change(self.corpus, self.index, removed, self.spans)

    def add(self, passages: Iterable[Passage] | Corpus) -> None:
        """Add passages to every search; saving the retriever keeps the change.

        They go into a second segment of the index; the first one does not change until :meth:`merge`, which
        is done first where an added passage has the id of a removed one, so an id stands for one passage.
        The model has not memorised the new passages, so it may score them lower.

        Raises:
            DataError: There is no passage, or an id is reserved, used twice or taken.
            ConfigError: The index holds only unique prefixes, or a passage is too long for the model.
        """
        self._segments()[0].rows.refuse_prefixes("adding passages", decoding=False)
        new = (
            passages if isinstance(passages, Corpus) else Corpus.from_passages(passages, "the added passages")
        )
        if self.removed.intersection(self.corpus.numbers(new.ids(range(len(new))))):
            self.merge()
        base, added = self._segments()
        written = None if self.spans is None else Spans(new, self.spans.words)
        segment = build_segment(written or new, self.codec, base.backend, added)
        corpus = self.corpus.extended(new)
        spans = None if self.spans is None or written is None else self.spans.extended(written, corpus)
        self._change(corpus, UnionIndex(base, segment), self.removed, spans)

    def merge(self) -> None:
        """Merge the index into one segment, and drop removed passages from corpus and index.

        Linear in the number of tokens: no sequence is sorted or tokenised again, and the result is that of
        ``grls index``. Passages keep their order, with added passages last.
        """
        if not self.removed and isinstance(self.index, Segment):
            return
        keep = np.ones(len(self.index), dtype=bool)
        keep[self.numbers(sorted(self.removed))] = False
        index, corpus, spans = merge(self.index, keep), self.corpus, self.spans
        if self.removed:
            left = np.setdiff1d(np.arange(len(corpus)), sorted(self.removed))
            corpus = corpus.select(left.tolist())
            spans = None if spans is None else spans.select(left, corpus)
        self._change(corpus, index, (), spans)

    def invariants(self, folder: Path) -> Iterator[tuple[str, Path, Callable[[], object]]]:
        """See :class:`~grls.retrieve.base.ChecksFolder`."""

        def compare() -> None:
            """Refuse an index whose sequences are not those of the passages, and DONE."""
            listed, rows, number = self.spans or self.corpus, self.index.rows, 0
            done = [self.codec.done_sequence]
            with Progress(len(self.index), "compare", "passages", shown=None) as bar:
                for batch in chain(map(self.codec.passages, listed.batches()), [done]):
                    for sequence in batch:
                        stored = rows.row(int(rows.row_of[number]))
                        expected = sequence if rows.form == "whole" else sequence[: len(stored)]
                        if not np.array_equal(stored, expected):
                            raise MismatchError(
                                f"{folder}: the index holds other tokens for number {number} than "
                                "corpus.jsonl; make it again with `grls index`."
                            )
                        number += 1
                    bar.update(len(batch))

        yield "the index holds the passages of corpus.jsonl", folder, compare

    def _segments(self) -> tuple[Segment, Segment | None]:
        """The first segment of the index, and the second one, if it has one."""
        if isinstance(self.index, UnionIndex):
            return self.index.base, self.index.added
        if not isinstance(self.index, Segment):
            raise ConfigError(
                "an index that is cut into prefix ranges can neither be saved nor be added to: change the "
                "retriever it was cut from (`grls index split`), and cut that one again."
            )
        return self.index, None

    def _everything(self) -> Subset | None:
        """The part of the index for a search without a filter; None: no passage is removed."""
        if self.removed and self._live is None:
            removed = self.numbers(sorted(self.removed))
            live = np.setdiff1d(np.arange(len(self.index)), removed, assume_unique=True)
            self._live = Subset(self.index.rows, live)
        return self._live

    def _change(
        self, corpus: Corpus, index: ConstraintIndex, removed: Collection[int], spans: Spans | None
    ) -> None:
        """Take a corpus and its index, unless a passage is too long for the model."""
        check_positions(self.model, 0, index.rows.longest)
        self.corpus, self.index, self.removed, self.spans = corpus, index, frozenset(removed), spans
        self._live = None
        if index.rows.form == "prefixes" and isinstance(index, ArrayIndex | RangedIndex):
            index.complete = self._sequence  # whole passages come from the corpus

    def _sequence(self, number: int) -> Ints:
        """The whole token sequence of number ``number`` in the index, from its text."""
        listed = self.corpus if self.spans is None else self.spans
        if number == len(listed):
            return self.codec.done_sequence
        return self.codec.passages(listed.passages([number]))[0]


def rescored(ranking: Sequence[ScoredPassage], odds: Floats, weight: float) -> list[ScoredPassage]:
    """Rank passages by score and log-odds.

    The search gives the C best passages of a query scores s(x). The generator reads each to its end and gives
    it log-odds a(x) (:mod:`grls.models.head`). With w the weight,

        score(x)  =  s(x) + w a(x) + c,    c = log sum over candidates of exp s  -  log sum of exp (s + w a),

    so the total probability of the candidates does not change. Other passages follow, with scores no higher
    than those of the candidates, so that a ranking does not depend on the number of hits. In chains this
    holds at every hop: scores stay log-probabilities, and DONE is rescored like a passage.

    Args:
        ranking: The passages of a query by the search, best first.
        odds: ``[C]`` log-odds (nats) of the first C passages.
        weight: The weight w.
    """
    count = len(odds)
    if not count:
        return list(ranking)
    scores = np.array([hit.score for hit in ranking[:count]])
    sums = scores + weight * odds
    sums += np.logaddexp.reduce(scores) - np.logaddexp.reduce(sums)
    first = [hit._replace(score=float(score)) for hit, score in zip(ranking, sums, strict=False)]
    first.sort(key=lambda hit: -hit.score)
    return first + [hit._replace(score=min(hit.score, first[-1].score)) for hit in ranking[count:]]
