"""A retriever of any kind, as users hold it: it searches, at once, asynchronously, or hop by hop.

A searcher holds a retriever and the folder it was opened from. Tuned settings stand in that folder, so a
searcher has no options of its own. It knows no kind of retriever. Tuning, explanations and uploads are
imported when they are used.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self, overload

from grls.api.streaming import StreamedHop, stream_hops, with_texts
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, passage_queries
from grls.data.filters import Filter, Only, both, where
from grls.data.inputs.arguments import Count, checked, checked_options
from grls.data.inputs.entries import SOURCE, corpus_of
from grls.data.inputs.gold import gold_of
from grls.data.inputs.tables import existing_path
from grls.data.types import Hit, Query
from grls.errors import ConfigError, DataError, GrlsError, WriteError
from grls.io.files import NEW, is_temporary, refuse_unusable, temporary
from grls.io.progress import counted
from grls.retrieve.base import Description, Retriever, single_steps, untuned_fingerprint
from grls.retrieve.compose import compose_hops, compose_hybrid, compose_rescored
from grls.retrieve.generative.options import USUAL_SEARCH
from grls.retrieve.hits import search_hits
from grls.retrieve.hops.options import HopOptions, HopSteps
from grls.retrieve.hub_names import CardOptions, is_hub_name
from grls.retrieve.hybrid.options import PriorOptions, PriorSpec
from grls.retrieve.queries import queries_of
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.rescored.options import PASSAGES, Rereading
from grls.retrieve.spec import CHECKSUMS, MANIFEST, followed, read_spec
from grls.tune.options import TuneOptions

if TYPE_CHECKING:
    from grls.api.explaining import ExplainedQuery

Ids = Collection[str | int]
"""Ids of passages."""


class Searcher:
    """A retriever that is ready to search, to be composed with others, and to be kept.

    A composite is another searcher; its folder names the folders of its members and opens them anew. Threads
    may share a searcher: their searches take turns, and the results are those of a search alone. A searcher
    can be pickled and copied: it is opened again from its folder, which must stay; a copy in the same process
    holds a temporary folder as well.

    Args:
        retriever: The retriever.
        folder: The folder that it was opened from; a :class:`~grls.api.searcher.HeldFolder` is held as
            long as the searcher.
        opening: The options of opening; composites open the retriever again with them.
    """

    def __init__(self, retriever: Retriever, folder: str | Path | HeldFolder, opening: Opening | None = None):
        self.retriever = retriever
        self.held_folder = folder if isinstance(folder, HeldFolder) else HeldFolder(folder)
        self.opening = opening or Opening()
        self.lock = RLock()

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: the folder and the options of opening, since unpickling opens the folder."""
        return {"folder": self.held_folder, "opening": self.opening}

    def __setstate__(self, state: dict[str, Any]) -> None:
        folder, opening = state["folder"], state["opening"]
        Searcher.__init__(self, load_retriever(folder.path, opening), folder, opening)

    def __copy__(self) -> Self:
        """A searcher of its own over the same retriever, which also holds a temporary folder."""
        copy = object.__new__(type(self))
        Searcher.__init__(copy, self.retriever, self.held_folder, self.opening)
        return copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()  # a search changes nothing in a retriever

    def __repr__(self) -> str:
        folder = "" if self.held_folder.path_is_temporary else f"{str(self.folder)!r}: "
        content = f"{self.describe().name}, {counted(len(self.corpus), 'passage')}"
        return f"{type(self).__name__}({folder}{content})"

    @property
    def folder(self) -> Path:
        """The folder that it was opened from; one in memory is written to a temporary folder at first use."""
        return self.held_folder.path

    @property
    def corpus(self) -> Corpus:
        """The passages that it searches."""
        return self.retriever.corpus

    def describe(self) -> Description:
        """The system, the meaning of its scores, its options and members."""
        return self.retriever.describe()

    def reopen(self) -> None:
        """Open the folder again, as after its options have changed; a running search keeps its retriever."""
        retriever = load_retriever(self.folder, self.opening)
        with self.lock:
            self.retriever = retriever

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
        rankings = with_texts(self._search(_listed(queries), k, filter_of(where, allow)), self.corpus)
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

        def hops() -> Iterator[StreamedHop]:  # holds the searcher, and so its folder
            with self.held_folder.named("this retriever"):
                yield from stream_hops(self.retriever, checked_query, allowed, self.lock)

        return hops()

    def _search(self, queries: Sequence[str | Query], k: int, allow: Filter | None) -> list[list[Hit]]:
        with self.lock, self.held_folder.named("this retriever"):
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
        arguments = (self.folder, specs, PriorOptions(**options))
        return self.composed("with_priors", compose_hybrid, arguments, members, output, names)

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
            output: The folder to write; None: a temporary folder.
            options: Other options of ``HopOptions``.

        Raises:
            ConfigError: An option cannot be used, or does not fit the retriever.
        """
        arguments = (self.folder, HopOptions(max=max, steps=steps, **options))
        return self.composed("hops", compose_hops, arguments, [self], output, self._named())

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
        arguments = (self.folder, str(model), Rereading(**{"passages": PASSAGES, **options}))
        names = {**self._named(), **argument_names("model", [model])}
        return self.composed("rescored", compose_rescored, arguments, [self], output, names)

    @checked_options(TuneOptions)
    def tune(self, queries: Any, gold: Any = None, **options: Any) -> Self:
        """Tune the retriever on development queries, and write the settings into its folder.

        Tuned are weights of priors or of a fusion, rescoring, hops, and where chains or rankings end. The
        settings that are tried are printed with their gains. The searcher searches with the result.

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

        with self.held_folder.named("this retriever", self._named()):
            grid = TuneOptions(**options)
            folder = followed(self.folder)
            if (folder / CHECKSUMS).is_file():
                raise ConfigError(
                    f"{folder} is a download from the hub, which stays as it is: save it to a folder of your "
                    "own and tune that one, as in grls.load(retriever.save(FOLDER))."
                )
            joined = gold_of(gold, queries, self.corpus)
            passages = [gold_passages(query, joined.qrels) for query in joined.queries]
            own = passage_queries(joined.queries, joined.qrels, self.corpus)
            dev = DevQueries("the queries given", "dev", joined.queries, passages, self.corpus, own)
            retriever = self.retriever
            if read_spec(folder).get("kind") != "hops":  # as the command opens it
                retriever = single_steps(retriever)
            tune_folder(folder, dev, grid, self.opening, untuned_fingerprint(retriever))
        self.reopen()
        return self

    @checked
    def updated(
        self,
        add: Any = None,
        remove: Ids | None = None,
        *,
        output: str | Path | None = None,
        merge: bool = False,
        batch_size: Count = 32,
    ) -> Searcher:
        """This retriever with passages removed, then others added behind the rest; this one stays as it is.

        Of a generator the index is changed, of an encoder only the added passages are encoded. A composite
        becomes a copy whose members are inside and are changed. Tuned settings stay. Models are not trained
        on the added passages.

        Args:
            add: Passages to add, in any form of :func:`~grls.data.inputs.entries.corpus_of`.
            remove: Ids of passages to remove.
            output: The folder to write; None: a temporary folder.
            merge: Merge the index of a generator, which then searches as fast as a new one.
            batch_size: Passages encoded together.

        Raises:
            ConfigError: There is nothing to do, or this kind of retriever takes no changes.
            DataError: A passage to remove is unknown, the id of an added one is taken, or its text is empty.
            WriteError: The folder cannot be written.
        """
        from grls.retrieve.update import Changes, update_folder

        folder = HeldFolder(output)
        with folder.named("updated", self._named()):
            removed = list(dict.fromkeys(map(str, () if remove is None else remove)))
            added = None if add is None else corpus_of(add, "add")
            if added is None and not removed and not merge:
                raise ConfigError("nothing to do: give passages to add, ids to remove, or merge=True.")
            changes = Changes(added, removed, merge, self.opening.device, batch_size)
            update_folder(self.folder, folder.path, changes)
            return Searcher(load_retriever(folder.path, self.opening), folder, self.opening)

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
        from grls.api.explaining import explain_query

        with self.lock, self.held_folder.named("this retriever", self._named()):
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
            WriteError: The disk is full, or the folder cannot be written.
        """
        from grls.retrieve.hub import pack_folder

        held = self.held_folder
        if held.fill is not None and "path" not in vars(held):  # in memory alone
            held.fill(Path(folder))
            return Path(folder)
        with held.named("this retriever", self._named()):
            pack_folder(self.folder, folder)
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
            raise ConfigError(f"expected the name of a repository as user/name, got {name!r}.")
        return upload(self.folder, name, private, card_of(self.retriever, self.folder, name, card_options))

    def composed(
        self,
        call: str,
        compose: Callable[..., Retriever],
        arguments: Sequence[Any],
        members: Sequence[Searcher],
        output: str | Path | None,
        names: Mapping[Path, str],
    ) -> Searcher:
        """A searcher of a composite folder, which ``compose`` writes; it opens its members anew, from theirs.

        A temporary folder goes with its process, so an output holds a copy of such a member.
        ``names``: the folders of members -> their names in the ``call``, for errors.
        """
        if output is not None and any(map(is_temporary, names)):
            from grls.retrieve.hub import pack_folder

            refuse_unusable(output, MANIFEST)
            made = self.composed(call, compose, arguments, members, None, names)
            with made.held_folder.named(call, names):
                pack_folder(made.folder, output, link=True)
            return Searcher(load_retriever(Path(output), self.opening), output, self.opening)
        folder = HeldFolder(output, [member.held_folder for member in members])
        with folder.named(call, names):
            retriever = compose(folder.path, *arguments, USUAL_SEARCH, self.opening)
            return Searcher(retriever, folder, self.opening)

    def _named(self) -> dict[Path, str]:
        return argument_names("this retriever", [self])


def member_names(members: Sequence[Searcher | str | Path]) -> list[str]:
    """The folders of members."""
    return [str(member.folder if isinstance(member, Searcher) else member) for member in members]


def argument_names(argument: str, members: Sequence[Searcher | str | Path]) -> dict[Path, str]:
    """The folders of members -> their names in the call: the path, or the number among the arguments."""
    names = {}
    for number, member in enumerate(members):
        name = f"{argument}[{number}]" if len(members) > 1 or argument == "priors" else argument
        if isinstance(member, Searcher):
            names[member.folder] = name if member.held_folder.path_is_temporary else str(member.folder)
        else:
            names[Path(member)] = str(Path(member))
    return names


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


_PATH = re.compile(r"(?<![\w/.~-])(?:[^\s/:;,'\"()\[\]]*/)+[^\s/:;,'\"()\[\]]*[^\s/:;,'\"()\[\].]")
"""A path with a separator, without the full stop of its sentence."""


class HeldFolder:
    """The folder of a new retriever, with the folders of its members.

    A folder made without ``output`` is temporary. It is made when its path is first read, and removed with
    this object, or at the end of the process; a forked process does not remove the folders of its parent. A
    composite retriever holds the objects of its members, so their folders stay as long as it names them.
    Folders that a killed process leaves are removed when the next temporary folder is made.

    ``fill`` writes the content of a temporary folder when it is made; None: whoever reads the path does.
    """

    def __init__(self, output: str | Path | None = None, members: Sequence[HeldFolder] = ()):
        self.path_is_temporary = output is None
        self.members = tuple(members)
        self.fill: Callable[[Path], None] | None = None
        if output is not None:
            self.path = Path(output)

    @cached_property
    def path(self) -> Path:
        """The folder; WriteError if a temporary one cannot be made."""
        stack = ExitStack()
        try:
            path = stack.enter_context(temporary(Path(tempfile.gettempdir()) / "grls")) / NEW
            path.mkdir()
        except OSError as error:
            stack.close()
            raise WriteError(
                f"cannot make a temporary folder: {error}; free disk space, set TMPDIR to a folder that can "
                "be written, or say where by output=."
            ) from error
        remove = weakref.finalize(self, stack.close)
        try:
            if self.fill is not None:
                self.fill(path)
        except BaseException:
            remove()
            raise
        return path

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle, which may be read in another working directory."""
        if self.path_is_temporary:
            raise ConfigError(
                "what is in a temporary folder cannot be pickled: the folder goes with the object that made "
                "it. Save it with save(folder), or make it with output=folder, and open that folder."
            )
        return HeldFolder, (self.path.absolute(),)

    def __copy__(self) -> HeldFolder:
        return self  # the folder goes with the last object that holds it

    def __deepcopy__(self, memo: dict[int, Any]) -> HeldFolder:
        return self

    @contextmanager
    def named(self, call: str, names: Mapping[Path, str] | None = None) -> Iterator[None]:
        """A context whose errors name folders as the caller does.

        Where the library names ``../../tmp/x/grls.json``, the caller reads the name of the call that writes
        this folder, or is about it; ``names`` has the names of other folders in the call.
        """
        try:
            yield
        except GrlsError as error:
            if "path" not in vars(self):  # no temporary folder is made yet
                raise
            text, root = error.text, _plain(self.path)
            folders = self._names("this retriever")
            folders |= {_plain(folder): name for folder, name in (names or {}).items()}
            if self.path_is_temporary:
                folders[root] = call
                for folder in (self.path, root, root.resolve()):
                    if text.startswith(f"{folder / MANIFEST}: "):
                        text = f"{call}: {text.partition(': ')[2]}"
            text = _PATH.sub(lambda path: _called(path[0], root, folders), text)
            error.args = (text, *error.args[1:])
            raise

    def _names(self, name: str) -> dict[Path, str]:
        """The temporary folders of this object and of its members -> their names."""
        names = {_plain(self.path): name} if self.path_is_temporary else {}
        for member in self.members:
            names |= member._names(f"a member of {name.removeprefix('a member of ')}")
        return names


def _called(path: str, root: Path, names: Mapping[Path, str]) -> str:
    """The caller's name of a path, which may be relative to ``root``: that of its folder, or a plain path."""
    if not path.startswith(("/", "..")) and root / path not in names and Path(path) not in names:
        return path
    plain, typed = _plain(root / path), _plain(Path(path))
    known = any(typed.is_relative_to(folder) for folder in (root, *names))
    if typed != plain and (known or (os.access(typed, os.F_OK) and not os.access(plain, os.F_OK))):
        return os.path.normpath(path)  # relative to the working directory, as the caller has named a folder
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
