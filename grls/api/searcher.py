"""A retriever of any kind, as users hold it: it searches, at once, asynchronously, or hop by hop.

A searcher holds a retriever and the folder it was opened from; what is tuned stands in that folder, so a
searcher has no options of its own. It knows no kind of retriever. What a search does not need (tuning,
explanations, uploads) is imported when it is used.
"""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self, overload

from grls.api.streaming import Batches, StreamedHop, stream_hops
from grls.api.texts import with_texts
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages
from grls.data.filters import Filter, Only, both, where
from grls.data.inputs.arguments import Count, checked, checked_options
from grls.data.inputs.entries import SOURCE, corpus_of
from grls.data.inputs.gold import gold_of
from grls.data.inputs.tables import existing_path
from grls.data.types import Hit, Query
from grls.errors import ConfigError, DataError, GrlsError, WriteError
from grls.io.files import NEW, temporary
from grls.io.progress import counted
from grls.retrieve.base import Description, Retriever, single_steps, untuned_fingerprint
from grls.retrieve.compose import compose_hops, compose_hybrid, compose_rescored
from grls.retrieve.generative.options import USUAL_SEARCH
from grls.retrieve.hops.options import HopOptions, HopSteps
from grls.retrieve.hops.retriever import search_hits
from grls.retrieve.hub import CardOptions
from grls.retrieve.hub_names import is_hub_name
from grls.retrieve.hybrid.options import PriorOptions, PriorSpec
from grls.retrieve.queries import queries_of
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.rescored.options import PASSAGES, Rereading
from grls.retrieve.spec import CHECKSUMS, MANIFEST, followed, read_spec
from grls.tune.options import TuneOptions

if TYPE_CHECKING:
    from grls.api.explaining import ExplainedQuery


class Searcher:
    """A retriever that is ready to search, to be composed with others, and to be kept.

    What is composed is another searcher, with a folder of its own that names those of its members and opens
    them anew. Threads may share a searcher: their searches take turns, and each gets what it would get alone.
    A searcher can be pickled and copied: it is opened again from its folder, which must stay; a copy in the
    same process holds a temporary folder as well.

    Attributes:
        folder: The folder that it was opened from.

    Args:
        retriever: The retriever.
        folder: The folder that it was opened from; a :class:`~grls.api.searcher.HeldFolder` is held as
            long as the searcher.
        how: How it was opened; composites open it again in the same way.
    """

    def __init__(self, retriever: Retriever, folder: str | Path | HeldFolder, how: Opening | None = None):
        self.retriever = retriever
        self.place = folder if isinstance(folder, HeldFolder) else HeldFolder(folder)
        self.folder = self.place.path
        self.how = how or Opening()
        self.turn = RLock()
        self._batches = Batches()

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: its folder, and how it was opened; so it is opened again where it is unpickled.

        Raises:
            ConfigError: The folder is temporary.
        """
        return {"folder": self.place, "how": self.how}

    def __setstate__(self, state: dict[str, Any]) -> None:
        folder, how = state["folder"], state["how"]
        Searcher.__init__(self, load_retriever(folder.path, how), folder, how)

    def __copy__(self) -> Self:
        """A searcher of its own over the same retriever, which also holds a temporary folder."""
        again = object.__new__(type(self))
        Searcher.__init__(again, self.retriever, self.place, self.how)
        return again

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()  # a search changes nothing in a retriever

    def __repr__(self) -> str:
        what = f"{self.describe().name}, {counted(len(self.corpus), 'passage')}"
        where = "" if self.place.path_is_temporary else f"{str(self.folder)!r}: "
        return f"{type(self).__name__}({where}{what})"

    @property
    def corpus(self) -> Corpus:
        """The passages that it searches."""
        return self.retriever.corpus

    def describe(self) -> Description:
        """What it is: system, meaning of its scores, options, members."""
        return self.retriever.describe()

    def reopen(self) -> None:
        """Open the folder again, as after its options have changed; searches that run end as they began."""
        retriever = load_retriever(self.folder, self.how)
        with self.turn:
            self.retriever = retriever

    @overload
    def search(
        self,
        queries: str | Query,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[Hit]: ...

    @overload
    def search(
        self,
        queries: Any,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[list[Hit]]: ...

    @checked
    def search(
        self,
        queries: Any,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
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
        hits = self._search(_listed(queries), k, filter_of(where, allow))
        found = with_texts(hits, self.corpus)
        return found[0] if isinstance(queries, str | Query) else found

    @overload
    async def asearch(
        self,
        queries: str | Query,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[Hit]: ...

    @overload
    async def asearch(
        self,
        queries: Any,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[list[Hit]]: ...

    @checked
    async def asearch(
        self,
        queries: Any,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """:meth:`search` in asynchronous code; what comes in at the same time is searched as one batch.

        Requests of one ``k`` and one filter form a batch. A request that fails or is cancelled does not
        disturb the others. A thread searches, which starts with the first request and ends with the searcher.
        """
        allowed = filter_of(where, allow)
        hits = await self._batches.ask(self._search, _listed(queries), k, allowed)
        found = with_texts(hits, self.corpus)
        return found[0] if isinstance(queries, str | Query) else found

    @checked
    def stream(
        self, query: str | Query, *, where: str | None = None, allow: Collection[str | int] | None = None
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
        (asked,) = _listed(query)
        return self._streamed(asked, filter_of(where, allow))

    def _streamed(self, query: str | Query, allow: Filter | None) -> Iterator[StreamedHop]:
        """The hops; it holds the searcher, and so its folder."""
        with self.place.named("this retriever"):
            yield from stream_hops(self.retriever, query, allow, self.turn)

    def rankings(self, queries: Sequence[str | Query], k: int) -> list[list[Hit]]:
        """The rankings of queries that measures read: chains are pooled, and hits have no texts.

        Raises:
            ConfigError: ``k`` is no positive number.
            DataError: A query is empty.
        """
        with self.turn, self.place.named("this retriever"):
            return self.retriever.retrieve(_listed(queries), k)

    def _search(self, queries: Sequence[str | Query], k: int, allow: Filter | None) -> list[list[Hit]]:
        with self.turn, self.place.named("this retriever"):
            return search_hits(self.retriever, queries, k, allow)

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
            output: The folder to write; None: a temporary folder.
            options: See :class:`~grls.retrieve.hybrid.options.PriorOptions`.

        Raises:
            ConfigError: This is no generator, a retriever cannot be a prior, or an option cannot be used.
            MismatchError: A prior is over another corpus.
        """
        if weights is not None and len(weights) != len(priors):
            raise ConfigError(
                f"{counted(len(weights), 'weight')} for {counted(len(priors), 'prior')}: give one for each "
                "prior."
            )
        specs = [
            PriorSpec(*pair)
            for pair in zip(member_names(priors), weights or [1.0] * len(priors), strict=True)
        ]
        members = [self, *(prior for prior in priors if isinstance(prior, Searcher))]
        names = {**self._named(), **argument_names("priors", priors)}
        given = (self.folder, specs, PriorOptions(**options))
        return self.composed("with_priors", compose_hybrid, given, members, output, names)

    @checked_options(HopOptions)
    def hops(
        self, max: Count = 4, steps: HopSteps = "ranked", *, output: str | Path | None = None, **options: Any
    ) -> Searcher:
        """This retriever, hop by hop; of one that hops already, these options replace all of its own.

        Args:
            max: Number of hops (fixed, ranked), or largest number of hops (dynamic).
            steps: See :class:`~grls.retrieve.hops.options.HopOptions`.
            output: The folder to write; None: a temporary folder.
            options: Other options of ``HopOptions``.

        Raises:
            ConfigError: An option cannot be used, or does not fit the retriever.
        """
        given = (self.folder, HopOptions(max=max, steps=steps, **options))
        return self.composed("hops", compose_hops, given, [self], output, self._named())

    @checked_options(Rereading)
    def rescored(self, model: str | Path, *, output: str | Path | None = None, **options: Any) -> Searcher:
        """This retriever, with its best passages rescored by a cross-encoder.

        Args:
            model: Folder or hub name of the cross-encoder; the new folder names it and holds no copy.
            output: The folder to write; None: a temporary folder.
            options: See :class:`~grls.retrieve.rescored.options.Rereading`.

        Raises:
            ConfigError: The model is no cross-encoder, or an option cannot be used.
        """
        given = (self.folder, str(model), Rereading(**{"passages": PASSAGES, **options}))
        names = {**self._named(), **argument_names("model", [model])}
        return self.composed("rescored", compose_rescored, given, [self], output, names)

    @checked_options(TuneOptions)
    def tune(self, queries: Any, gold: Any = None, **options: Any) -> Self:
        """Tune all that the folder has on development queries, and write it there.

        Weights of priors or of a fusion, rescoring, hops, where chains or rankings end. What is tried and
        what it gains is printed. The searcher searches with the result.

        Args:
            queries: Development queries, in any form of :func:`~grls.data.inputs.entries.queries_from`; not
                those that results will be reported for.
            gold: Their gold passages, in any form of :func:`~grls.data.inputs.gold.gold_of`; None: the
                evidence of the queries.
            options: What is tried; see :class:`~grls.tune.options.TuneOptions`.

        Returns:
            This searcher.

        Raises:
            ConfigError: There is nothing to tune, an option cannot be used, or the folder was downloaded.
            DataError: A query has no gold passage, or one that is not in the corpus.
        """
        from grls.tune.run import tune_folder
        from grls.tune.step import DevQueries

        with self.place.named("this retriever", self._named()):
            grid = TuneOptions(**options)
            folder = followed(self.folder)
            if (folder / CHECKSUMS).is_file():
                raise ConfigError(
                    f"{folder} is a download from the hub, which stays as it is: save it to a folder of your "
                    "own and tune that one, as in grls.load(retriever.save(FOLDER))."
                )
            joined = gold_of(gold, queries, self.corpus)
            passages = [gold_passages(query, joined.qrels) for query in joined.queries]
            dev = DevQueries("the queries given", "dev", joined.queries, passages, self.corpus)
            opened = self.retriever
            if read_spec(folder).get("kind") != "hops":  # as the command opens it
                opened = single_steps(opened)
            tune_folder(folder, dev, grid, self.how, untuned_fingerprint(opened))
        self.reopen()
        return self

    @checked
    def updated(
        self,
        add: Any = None,
        remove: Collection[str | int] | None = None,
        *,
        output: str | Path | None = None,
        merge: bool = False,
        batch_size: Count = 32,
    ) -> Searcher:
        """This retriever with passages removed, then others added behind the rest; this one stays as it is.

        Nothing is made again: of a generator the index is changed, of an encoder only the added passages are
        encoded. A composite becomes a copy whose members are inside and are changed. What is tuned stays.
        Models are not trained on the added passages.

        Args:
            add: Passages, in any form of :func:`~grls.data.inputs.entries.corpus_of`; None: none.
            remove: Ids of passages to remove; None: none.
            output: The folder to write; None: a temporary folder.
            merge: Merge the index of a generator, which then searches as fast as a new one.
            batch_size: Passages encoded together.

        Raises:
            ConfigError: There is nothing to do, or this kind of retriever takes no changes.
            DataError: A passage to remove is unknown, the id of an added one is taken, or its text is empty.
            WriteError: The folder cannot be written.
        """
        from grls.retrieve.update import Changes, update_folder

        place = HeldFolder(output)
        with place.named("updated", self._named()):
            gone = list(dict.fromkeys(map(str, () if remove is None else remove)))
            new = None if add is None else corpus_of(add, "add")
            if new is None and not gone and not merge:
                raise ConfigError("nothing to do: give passages to add, ids to remove, or merge=True.")
            update_folder(self.folder, place.path, Changes(new, gone, merge, self.how.device, batch_size))
            return Searcher(load_retriever(place.path, self.how), place, self.how)

    @checked
    def explain(
        self,
        query: str | Query,
        gold: str | int | Collection[str | int] | None = None,
        *,
        depth: Count = 100,
    ) -> ExplainedQuery:
        """Explain why the gold passages of a query are found, or why not.

        For a search that decodes whole passages: at which step a passage left the beam and by how much, hop
        by hop where the retriever goes so. For other searches: rank and score, what stands above it and by
        how much, and for BM25 the words in common. What is returned prints as a report.

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
        from grls.api.explaining import explain_query

        with self.turn, self.place.named("this retriever", self._named()):
            return explain_query(self.retriever, self.folder, query, gold, depth)

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
            WriteError: The disk is full or the place cannot be written.
        """
        from grls.retrieve.hub import pack_folder

        with self.place.named("this retriever", self._named()):
            pack_folder(self.folder, folder)
        return Path(folder)

    @checked_options(CardOptions)
    def push_to_hub(self, name: str, private: bool = False, **options: Any) -> str:
        """Upload a copy of the retriever that needs nothing else, with a model card.

        The card is the ``README.md`` in the folder, such as that of a run of ``grls fit``; where there is
        none, one is written, with the measures of ``metrics.json``.

        Args:
            name: The repository: ``user/name``. It is made where it is missing; what it held is replaced.
            private: Whether a new repository is private.
            options: See :class:`~grls.retrieve.hub.CardOptions`; they make a card anew.

        Returns:
            The address.

        Raises:
            ConfigError: The hub refuses the name or the user, or cannot be reached.
        """
        from grls.retrieve.hub import card_of, upload

        given = CardOptions(**options)
        if not is_hub_name(name):
            raise ConfigError(f"expected the name of a repository as user/name, got {name!r}.")
        return upload(self.folder, name, private, card_of(self.retriever, self.folder, name, given))

    def composed(
        self,
        call: str,
        compose: Callable[..., Retriever],
        given: Sequence[Any],
        members: Sequence[Searcher],
        output: str | Path | None,
        names: Mapping[Path, str],
    ) -> Searcher:
        """A searcher of a composite folder; it opens its members anew, from their folders.

        Args:
            call: The name of the call, for errors.
            compose: Writes the folder and opens it, one of :mod:`grls.retrieve.compose`.
            given: Its arguments between the folder and the options of search.
            members: The searchers that it is made of.
            output: The folder; None: a temporary folder.
            names: The folders of members -> what the caller calls them, for errors.
        """
        place = HeldFolder(output, [one.place for one in members])
        with place.named(call, names):
            return Searcher(compose(place.path, *given, USUAL_SEARCH, self.how), place, self.how)

    def _named(self) -> dict[Path, str]:
        return argument_names("this retriever", [self])


def member_names(members: Sequence[Searcher | str | Path]) -> list[str]:
    """The folders of members."""
    return [str(one.folder if isinstance(one, Searcher) else one) for one in members]


def argument_names(argument: str, members: Sequence[Searcher | str | Path]) -> dict[Path, str]:
    """The folders of members -> what the caller calls them: the path written, or the place in the arguments.

    Args:
        argument: The name of the argument.
        members: Its values.
    """
    names = {}
    for place, one in enumerate(members):
        number = f"{argument}[{place}]" if len(members) > 1 or argument == "priors" else argument
        held = isinstance(one, Searcher) and one.place.path_is_temporary
        folder = one.folder if isinstance(one, Searcher) else Path(one)
        names[folder] = number if held else str(folder)
    return names


def _listed(queries: Any) -> list[Query]:
    """Queries as a list; a query alone becomes a list of one.

    Raises:
        DataError: There is something else, a query without text, or the name of a file as a text.
    """
    if isinstance(queries, str) and queries.endswith(".jsonl") and existing_path(queries, SOURCE):
        raise DataError(
            f"the text {queries!r} would be one query, and it is a file; write Path({queries!r}) to search "
            "for the queries in it.",
            SOURCE,
        )
    return queries_of([queries] if isinstance(queries, str | Query) else queries)


def filter_of(condition: str | None, allow: Collection[str | int] | None) -> Filter | None:
    """The filter of a condition over metadata and of allowed ids; None: every passage may be found.

    Raises:
        ConfigError: The condition cannot be read.
    """
    try:
        rule = None if condition is None else where(condition)
    except ConfigError as error:
        raise ConfigError(f"where: {error.text}") from None
    return both(
        rule,
        None if allow is None else Only(frozenset(map(str, allow))),
    )


# Temporary folders of objects: what an object keeps on disk goes when the object goes.
#
# A retriever is a folder. The folder of one that is made without ``output`` is temporary, and belongs to the
# object that users hold; errors name the object in its place. What a killed process leaves is removed when
# the next temporary folder is made.


_PATH = re.compile(r"(?<![\w/.~-])(?:[^\s/:;,'\"()\[\]]*/)+[^\s/:;,'\"()\[\]]*[^\s/:;,'\"()\[\].]")
"""A path with a separator, without the full stop of its sentence."""


class HeldFolder:
    """The folder of a retriever that is made, with those of its members.

    A temporary folder is removed with this object, or at the end of the process; a forked process does not
    remove the folders of its parent. A composite retriever holds the objects of its members, so their folders
    stay as long as it names them.

    Attributes:
        path: The folder.
        path_is_temporary: Whether the folder itself is removed with this object.
        members: The folders of its members.

    Args:
        output: The folder that the user has named; None: a temporary folder.
        members: The folders of its members.

    Raises:
        WriteError: A temporary folder cannot be made.
    """

    def __init__(self, output: str | Path | None = None, members: Sequence[HeldFolder] = ()):
        self.path_is_temporary = output is None
        self.members = tuple(members)
        if output is not None:
            self.path = Path(output)
            return
        held = ExitStack()
        try:
            self.path = held.enter_context(temporary(Path(tempfile.gettempdir()) / "grls")) / NEW
            self.path.mkdir()
        except OSError as error:
            held.close()
            raise WriteError(
                f"cannot make a temporary folder: {error}; free disk space, set TMPDIR to a folder that can "
                "be written, or say where by output=."
            ) from error
        weakref.finalize(self, held.close)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle, which may be read in another working directory.

        Raises:
            ConfigError: It is temporary.
        """
        if self.temporary:
            raise ConfigError(
                "what is in a temporary folder, or has a member there, cannot be pickled: the folder goes "
                "with the object that made it. Save it with save(folder), or make it and its members with "
                "output=folder, and open that folder."
            )
        return {**vars(self), "path": self.path.absolute()}

    def __copy__(self) -> HeldFolder:
        return self  # the folder goes with the last object that holds it

    def __deepcopy__(self, memo: dict[int, Any]) -> HeldFolder:
        return self

    @property
    def temporary(self) -> bool:
        """Whether it, or the folder of a member, is removed with this object."""
        return self.path_is_temporary or any(member.temporary for member in self.members)

    @contextmanager
    def named(self, call: str, names: Mapping[Path, str] | None = None) -> Iterator[None]:
        """A context whose errors name folders as the caller does.

        The library names ``../../tmp/x/grls.json``. The caller finds the call in its place, or the argument
        that the temporary folder belongs to.

        Args:
            call: The name of the call that writes this folder, or is about it.
            names: The folders of other retrievers -> what the caller calls them.
        """
        try:
            yield
        except GrlsError as error:
            text, here = error.text, _plain(self.path)
            folders = self._names("this retriever") | {
                _plain(one): name for one, name in (names or {}).items()
            }
            if self.path_is_temporary:
                folders[here] = call
                for place in (self.path, here, here.resolve()):
                    if text.startswith(f"{place}/{MANIFEST}: "):
                        text = f"{call}: {text.partition(': ')[2]}"
            text = _PATH.sub(lambda path: _called(path[0], here, folders), text)
            error.args = (text, *error.args[1:])
            raise

    def _names(self, name: str) -> dict[Path, str]:
        """Its temporary folder and those of its members -> their names."""
        names = {_plain(self.path): name} if self.path_is_temporary else {}
        for member in self.members:
            names |= member._names(f"a member of {name.removeprefix('a member of ')}")
        return names


def _called(path: str, here: Path, names: Mapping[Path, str]) -> str:
    """What the caller calls a path: the name of its folder, or the path as it would be written.

    Args:
        path: The path, which may be relative to a folder.
        here: The folder.
        names: Folders -> what the caller calls them.
    """
    if not path.startswith(("/", "..")) and here / path not in names and Path(path) not in names:
        return path
    plain = _plain(here / path)
    for folder in (plain, *plain.parents):
        if folder in names:
            name, rest = names[folder], plain.relative_to(folder).as_posix()
            if rest == ".":
                return name
            if "/" in name or Path(name).is_dir():
                return f"{name}/{rest}"
            return f"the corpus of {name}" if rest == "corpus.jsonl" else f"{rest} of {name}"
    if ".." not in Path(path).parts:
        return path
    current = Path.cwd()
    return str(plain.relative_to(current) if plain.is_relative_to(current) else plain)


def _plain(folder: Path) -> Path:
    """The absolute path of a folder, with its links as they are."""
    return Path(os.path.normpath(folder.absolute()))
