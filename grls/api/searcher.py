"""A retriever of any kind, as users hold it: it searches, at once, asynchronously, or hop by hop.

A searcher holds a retriever and the folder it was opened from. Tuned settings stand in that folder, so a
searcher has no options of its own. It knows no kind of retriever. Tuning, explanations and uploads are
imported when they are used.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self, overload

from grls.api.streaming import StreamedHop, stream_hops
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, passage_queries
from grls.data.filters import Filter, Only, both, where
from grls.data.inputs.entries import SOURCE, corpus_of
from grls.data.inputs.gold import gold_of
from grls.data.inputs.tables import existing_path, id_list
from grls.data.types import Hit, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.arguments import Count, checked, checked_options
from grls.io.files import (
    NOT_PICKLED,
    TemporaryFolder,
    folder_for,
    is_temporary,
    refuse_unusable,
    saying,
)
from grls.io.progress import counted
from grls.retrieve.base import Description, Retriever, untuned_fingerprint
from grls.retrieve.compose import write_retriever
from grls.retrieve.hits import search_hits, with_texts
from grls.retrieve.hops.options import HopOptions, HopSteps, hops_spec
from grls.retrieve.hops.retriever import in_hops
from grls.retrieve.hub_names import CardOptions, is_hub_name
from grls.retrieve.hybrid.options import PriorOptions, PriorSpec, hybrid_spec
from grls.retrieve.queries import queries_of
from grls.retrieve.registry import BM25, Opening, load_retriever, names_bm25, with_languages
from grls.retrieve.rescored.options import PASSAGES, Rereading, rescored_spec
from grls.retrieve.spec import MANIFEST, Component, Member, data_beside, followed
from grls.tune.options import TuneOptions

if TYPE_CHECKING:
    from grls.api.explaining import ExplainedQuery

Ids = Collection[str | int]
"""Ids of passages."""


class Searcher:
    """A retriever that is ready to search, to be composed with others, and to be saved.

    A composite is another searcher. It searches with the retrievers that its members hold, so weights are in
    memory once, and the members stay usable. Threads may share a searcher: their searches take turns, and the
    results are those of a search alone. A searcher of a folder can be pickled: it is opened again from its
    folder, which must stay.

    Args:
        retriever: The retriever.
        folder: The folder that it was opened from; None: it is in memory alone.
        opening: The options of opening, for members that are named by their folders.
        spec: See :class:`~grls.retrieve.spec.Component`.
    """

    def __init__(
        self,
        retriever: Retriever,
        folder: str | os.PathLike[str] | None = None,
        opening: Opening | None = None,
        spec: dict[str, Any] | None = None,
    ):
        self.component = Component(retriever, folder, spec)
        self.opening = opening or Opening()
        self.lock = RLock()

    @classmethod
    def opened(cls, folder: str | os.PathLike[str], opening: Opening) -> Searcher:
        """The searcher of a folder; errors do not name the corpus in a temporary one by its path."""
        retriever = load_retriever(Path(folder), opening)
        if is_temporary(Path(folder)):
            retriever.corpus.source = "the corpus"
        return Searcher(retriever, folder, opening)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: the folder and the options of opening, since unpickling opens the folder."""
        if self.folder is None or is_temporary(self.folder):
            raise ConfigError(f"what is in memory or {NOT_PICKLED}")
        return {"folder": self.folder.absolute(), "opening": self.opening}

    def __setstate__(self, state: dict[str, Any]) -> None:
        folder, opening = state["folder"], state["opening"]
        Searcher.__init__(self, load_retriever(folder, opening), folder, opening)

    def __copy__(self) -> Self:
        """A searcher of its own over the same retriever."""
        copy = object.__new__(type(self))
        Searcher.__init__(copy, self.retriever, self.component.given, self.opening, self.component.spec)
        return copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()  # a search changes nothing in a retriever

    def __repr__(self) -> str:
        named = self.folder is not None and not is_temporary(self.folder)
        content = f"{self.describe().name}, {counted(len(self.corpus), 'passage')}"
        return f"{type(self).__name__}({f'{str(self.folder)!r}: ' if named else ''}{content})"

    @property
    def retriever(self) -> Retriever:
        """The retriever."""
        return self.component.retriever

    @property
    def folder(self) -> Path | None:
        """The folder that it was opened from, or written to; None: it is in memory alone."""
        return None if self.component.given is None else Path(self.component.given)

    @property
    def corpus(self) -> Corpus:
        """The passages that it searches."""
        return self.retriever.corpus

    def describe(self) -> Description:
        """The system, the meaning of its scores, its options and members."""
        return self.retriever.describe()

    def _placed(self) -> str | os.PathLike[str]:
        """Its folder; one in memory is written to a temporary folder, which the caller holds."""
        if self.component.given is not None:
            return self.component.given
        place = TemporaryFolder()
        write_retriever(self.component, place, link=True)
        return place

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """The folder; of a searcher in memory a temporary one, until the block ends."""
        place = self._placed()
        with saying("this retriever", place):
            yield Path(place)

    @overload
    def search(
        self, queries: str | Query, k: Count = 10, *, where: str | None = None, allow: Ids | None = None
    ) -> list[Hit]: ...

    @overload
    def search(
        self, queries: Any, k: Count = 10, *, where: str | None = None, allow: Ids | None = None
    ) -> list[list[Hit]]: ...

    @checked
    def search(
        self, queries: Any, k: Count = 10, *, where: str | None = None, allow: Ids | None = None
    ) -> list[Hit] | list[list[Hit]]:
        """The best passages of a query, or of each of several; with ``fixed`` and ``dynamic`` hops the chain.

        Args:
            queries: A query, or several: a list of texts or of ``Query``, or any other form that ``tune``
                takes (:func:`~grls.data.inputs.entries.queries_from`), such as a data frame. Many at once are
                much faster than one after another.
            k: Largest number of hits of a query, at least 1.
            where: A filter over the metadata of passages, such as ``"year>=2000"`` (:mod:`grls.data.where`).
            allow: Ids of the passages that may be found; None: all.

        Returns:
            Hits with text and title, best first; for a list of queries one list each, in their order. Of a
            chain they are in the order of hops, with the number of each hop (``hop``) and the score of the
            chain up to it.

        Raises:
            ConfigError: ``k`` is no positive number, or a filter cannot be read.
            DataError: A query is empty, or an allowed passage is not in the corpus.
        """
        listed, allowed = _listed(queries), filter_of(where, allow)
        with self.lock:
            found = search_hits(self.retriever, listed, k, allowed)
        rankings = with_texts(found, self.corpus)
        return rankings[0] if isinstance(queries, str | Query) else rankings

    @overload
    async def asearch(
        self, queries: str | Query, k: Count = 10, *, where: str | None = None, allow: Ids | None = None
    ) -> list[Hit]: ...

    @overload
    async def asearch(
        self, queries: Any, k: Count = 10, *, where: str | None = None, allow: Ids | None = None
    ) -> list[list[Hit]]: ...

    @checked
    async def asearch(
        self, queries: Any, k: Count = 10, *, where: str | None = None, allow: Ids | None = None
    ) -> list[Hit] | list[list[Hit]]:
        """:meth:`search` in a thread, for asynchronous code; several queries of one call are one batch."""
        return await asyncio.to_thread(self.search, queries, k, where=where, allow=allow)

    @checked
    def stream(
        self, query: str | Query, *, where: str | None = None, allow: Ids | None = None
    ) -> Iterator[StreamedHop]:
        """The hops of a query as they are found, until DONE or the most hops.

        Where one chain is kept, every hop adds a passage to it. Where several are kept, each item holds the
        best one so far; the last item holds the chain that the search chooses. Of ranked hops it is the
        likeliest chain. A retriever of single steps has one hop, its best passage.

        Args:
            query: The query.
            where: A filter over the metadata of passages. It holds in every hop, so it must hold the passages
                on the way as well.
            allow: Ids of the passages that may be found; None: all.

        Raises:
            ConfigError: A filter cannot be read.
            DataError: The query is empty.
        """
        (checked_query,) = _listed(query)
        allowed = filter_of(where, allow)

        def hops() -> Iterator[StreamedHop]:  # holds the searcher, and so its temporary folder
            yield from stream_hops(self.retriever, checked_query, allowed, self.lock)

        return hops()

    @checked_options(PriorOptions)
    def with_priors(
        self,
        *priors: Searcher | str | Path,
        weights: Sequence[float] | None = None,
        output: str | Path | None = None,
        **options: Any,
    ) -> Searcher:
        """This generator, with other retrievers that look ahead while it writes.

        Args:
            priors: Retrievers that score all passages: searchers or folders, or ``"bm25"``.
            weights: The weight of each prior; None: 1.
            output: The folder to write; None: the result is in memory.
            options: See :class:`~grls.retrieve.hybrid.options.PriorOptions`.

        Raises:
            ConfigError: This is no generator, a retriever cannot be a prior, or an option cannot be used.
            MismatchError: A prior is over another corpus.
        """
        from grls.retrieve.generative.retriever import as_generator  # late: PyTorch
        from grls.retrieve.hybrid.retriever import HybridRetriever

        if weights is not None and len(weights) != len(priors):
            raise ConfigError(
                f"{counted(len(weights), 'weight')} for {counted(len(priors), 'prior')}: give one for each "
                "prior."
            )
        pairs = zip(priors, weights or [1.0] * len(priors), strict=True)
        chosen = PriorOptions(**options)
        with composing("with_priors", output):
            generator = as_generator(self.component.single_step, "priors look ahead for a generator")
            specs = [PriorSpec(named_member(prior, self.corpus), weight) for prior, weight in pairs]
            spec = hybrid_spec(self.component, specs, chosen)
            retriever = HybridRetriever.over(generator, specs, chosen, opening=self.opening)
        return composite(retriever, spec, output, self)

    @checked_options(HopOptions)
    def hops(
        self,
        max: Count | None = None,
        steps: HopSteps = "ranked",
        *,
        output: str | Path | None = None,
        **options: Any,
    ) -> Searcher:
        """This retriever, hop by hop; of one that hops already, these options replace all of its own.

        Args:
            max: Number of hops (fixed, ranked), or largest number (dynamic); None: see ``HopOptions``.
            steps: See :class:`~grls.retrieve.hops.options.HopOptions`.
            output: The folder to write; None: the result is in memory.
            options: Other options of ``HopOptions``.

        Raises:
            ConfigError: An option cannot be used, or does not fit the retriever.
        """
        chosen = HopOptions(max=max, steps=steps, **options)
        with composing("hops", output):
            retriever = in_hops(self.retriever, chosen)
        return composite(retriever, hops_spec(self.component, chosen), output, self)

    @checked_options(Rereading)
    def rescored(self, model: str | Path, *, output: str | Path | None = None, **options: Any) -> Searcher:
        """This retriever, with its best passages rescored by a cross-encoder.

        Args:
            model: Folder or hub name of the cross-encoder; ``output`` names it and holds no copy.
            output: The folder to write; None: the result is in memory.
            options: See :class:`~grls.retrieve.rescored.options.Rereading`.

        Raises:
            ConfigError: The model is no cross-encoder, or an option cannot be used.
        """
        from grls.retrieve.rescored.retriever import rescored_by  # late: sentence-transformers

        rereading = Rereading(**{"passages": PASSAGES, **options})
        with composing("rescored", output):
            spec = rescored_spec(self.component, str(model), rereading)
            retriever = rescored_by(self.retriever, str(Path(model).expanduser()), rereading, self.opening)
        return composite(retriever, spec | retriever.sums(), output, self)

    @checked_options(TuneOptions)
    def tune(self, queries: Any, gold: Any = None, **options: Any) -> Self:
        """Tune the retriever on development queries, and write the settings into its folder.

        Tuned are weights of priors or of a fusion, rescoring, hops, and where chains or rankings end. The
        settings that are tried are printed with their gains. The searcher searches with the result. One in
        memory gets a temporary folder.

        Args:
            queries: Development queries, in any form of :func:`~grls.data.inputs.entries.queries_from`; not
                those that results will be reported for.
            gold: Their gold passages, in any form of :func:`~grls.data.inputs.gold.gold_of`; None: the
                evidence of the queries.
            options: The settings to try; see :class:`~grls.tune.options.TuneOptions`.

        Returns:
            This searcher.

        Raises:
            ConfigError: There is nothing to tune, an option cannot be used, or the folder was downloaded.
            DataError: A query has no gold passage, or one that is not in the corpus.
        """
        from grls.tune.run import tune_folder
        from grls.tune.step import DevQueries

        grid = TuneOptions(**options)
        joined = gold_of(gold, queries, self.corpus)
        passages = [gold_passages(query, joined.qrels) for query in joined.queries]
        own = passage_queries(joined.queries, joined.qrels, self.corpus)
        dev = DevQueries(joined.queries, passages, self.corpus, own)
        place = self._placed()
        folder = followed(Path(place))
        if folder.parent.name == "snapshots":  # of the hub's cache
            raise ConfigError(
                f"{folder} is a download from the hub, which stays as it is: save it to a folder of your own "
                "and tune that one, as in grls.load(retriever.save(FOLDER))."
            )
        with saying("this retriever", place):
            tune_folder(folder, dev, grid, self.opening, untuned_fingerprint(self.component.single_step))
        retriever = load_retriever(folder, self.opening)
        with self.lock:  # a running search keeps its retriever
            self.component = Component(retriever, place, self.component.spec)
        return self

    @checked
    def updated(
        self,
        add: Any = None,
        remove: Ids | None = None,
        *,
        output: str | Path | None = None,
        batch_size: Count = 32,
    ) -> Searcher:
        """This retriever with passages removed, then others added behind the rest; this one stays as it is.

        Of a generator the index is sorted again, of an encoder only the added passages are encoded. A
        composite becomes a copy whose members are inside and are changed. Tuned settings stay. Models are
        not trained on the added passages.

        Args:
            add: Passages to add, in any form of :func:`~grls.data.inputs.entries.corpus_of`.
            remove: Ids of passages to remove.
            output: The folder to write; None: a temporary folder.
            batch_size: Passages encoded together.

        Raises:
            ConfigError: There is nothing to do, or this kind of retriever takes no changes.
            DataError: A passage to remove is unknown, the id of an added one is taken, or its text is empty.
            WriteError: The folder cannot be written.
        """
        from grls.retrieve.update import Changes, update_folder

        removed = list(dict.fromkeys(map(str, () if remove is None else remove)))
        added = None if add is None else corpus_of(add, "add")
        if added is None and not removed:
            raise ConfigError("nothing to do: give passages to add, or ids to remove.")
        changes = Changes(added, removed, self.opening.device, batch_size)
        target = folder_for(output)
        with self.on_disk() as folder:
            update_folder(folder, Path(target), changes)
        return Searcher.opened(target, self.opening)

    @checked
    def explain(
        self,
        query: str | Query,
        gold: str | int | Ids | None = None,
        *,
        depth: Count = 100,
    ) -> ExplainedQuery:
        """Explain why the gold passages of a query are found, or why not.

        For a search that decodes whole passages: at which step a passage left the beam and by how much, in
        each hop of the retriever. For other searches: rank and score, the passages above it and by how much,
        and for BM25 the words in common. The explanation prints as a report.

        Args:
            query: The text of a query, a ``Query``, or the id of a query of the data set that `grls fit` left
                in the folder or beside it (``data/``).
            gold: Ids of the gold passages, in their order where there are hops; None: those of the data set,
                or the evidence of the query.
            depth: Number of passages that are ranked to find the gold passages (not where passages are
                decoded).

        Raises:
            DataError: No gold passage is known, or one is not in the corpus.
        """
        from grls.api.explaining import explain_query, find_query

        order = [] if gold is None else list(dict.fromkeys(id_list(gold, "the query", "gold")))
        if gold is not None and not order:
            raise ConfigError("gold names no passage; leave it out, or give ids.")
        queries_of([query])
        if isinstance(query, str):
            data = None if self.folder is None else data_beside(self.folder)
            query, order = find_query(query, order, data, None, self.corpus)
        elif not (order := order or list(dict.fromkeys(query.evidence))):
            raise DataError(f"the query {query.id!r} has no evidence; name its gold passages: gold=[…].")
        with self.lock:
            return explain_query(self.retriever, query, order, depth)

    @checked
    def save(self, folder: str | Path) -> Path:
        """Write a copy of the retriever that needs nothing else: its members are inside.

        A cross-encoder that is named by its hub name stays named.

        Args:
            folder: The copy; an earlier retriever there is replaced.

        Returns:
            The folder, which :func:`grls.load` opens.

        Raises:
            ConfigError: The folder holds something else, or a member of the retriever.
            WriteError: The disk is full, or the folder cannot be written.
        """
        write_retriever(self.component, folder)
        return Path(folder)

    @checked_options(CardOptions)
    def push_to_hub(self, name: str, private: bool = False, **options: Any) -> str:
        """Upload a copy of the retriever that needs nothing else, with a model card.

        The card is the ``README.md`` in the folder, such as that of a run of ``grls fit``; a folder without
        one gets a card with the measures of ``metrics.json``.

        Args:
            name: The repository: ``user/name``. A missing one is made; files in it are replaced.
            private: Whether a new repository is private.
            options: See :class:`~grls.retrieve.hub_names.CardOptions`; they make a card anew.

        Returns:
            The address.

        Raises:
            ConfigError: The hub refuses the name or the user, or cannot be reached.
        """
        from grls.retrieve.hub import card_of, upload

        card_options = CardOptions(**options)
        if not is_hub_name(name):
            raise ConfigError(f"{name!r} is no name of a repository on the hub: give it as user/name.")
        with self.on_disk() as folder:
            return upload(folder, name, private, card_of(self.retriever, folder, name, card_options))


@contextmanager
def composing(call: str, output: str | Path | None) -> Iterator[None]:
    """Errors of a composite begin with the call; a folder that cannot be written is refused at once."""
    if output is not None:
        refuse_unusable(output, MANIFEST)
    try:
        yield
    except (ConfigError, DataError, MismatchError) as error:
        text = error.text.removeprefix(f"{MANIFEST}: ")  # there is no such file
        raise type(error)(f"{call}: {text}") from error


def composite(
    retriever: Retriever, spec: dict[str, Any], output: str | Path | None, of: Searcher
) -> Searcher:
    """The searcher of a composite, opened as one of its members was; its folder gets the ``spec``."""
    if output is not None:
        write_retriever(Component(retriever, None, spec), output, link=True)
    return Searcher(retriever, output, of.opening, spec)


def named_member(retriever: Searcher | str | Path, corpus: Corpus) -> Member:
    """A member of a composite: a retriever at hand, or a name that any folder may hold."""
    if isinstance(retriever, Searcher):
        return retriever.component
    if names_bm25(str(retriever)):
        return with_languages({"kind": BM25}, Path(), corpus)
    return str(Path(retriever).absolute()) if Path(retriever).exists() else str(retriever)


@contextmanager
def folder_of(retriever: Searcher | str | Path) -> Iterator[str]:
    """The folder of a retriever for a call that opens it again, or its name."""
    if isinstance(retriever, Searcher):
        with retriever.on_disk() as folder:
            yield str(folder)
    else:
        yield str(retriever)


def _listed(queries: Any) -> list[Query]:
    """Queries as a list, of one item for a query alone; a text that is the name of a file is refused."""
    if isinstance(queries, str) and queries.endswith(".jsonl") and existing_path(queries, SOURCE):
        raise DataError(
            f"the text {queries!r} would be one query, and it is a file; write Path({queries!r}) to search "
            "for the queries in it.",
            SOURCE,
        )
    return queries_of([queries] if isinstance(queries, str | Query) else queries)


def filter_of(condition: str | None, allow: Ids | None) -> Filter | None:
    """The filter of a condition over metadata and of allowed ids; None: every passage may be found.

    Raises:
        ConfigError: The condition cannot be read.
    """
    if condition is None and allow is None:
        return None
    try:
        rule = None if condition is None else where(condition)
    except ConfigError as error:
        raise ConfigError(f"where: {error.text}") from None
    return both(rule, None if allow is None else Only(frozenset(map(str, allow))))
