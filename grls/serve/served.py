"""The retrievers of a server: each has a name, a folder, and a version that answers.

A new version is loaded beside the one that answers, tried, and swapped in. The old one does its waiting
jobs, and ends.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from time import perf_counter, sleep
from types import MappingProxyType
from typing import Any, NamedTuple

from grls.api.opening import load
from grls.api.searcher import Searcher
from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, read_queries
from grls.errors import GrlsError
from grls.io.files import Stamp, named_lines, noting_mapped, stamp
from grls.io.progress import counted
from grls.io.timing import PartCounts
from grls.retrieve.base import Retriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.spec import data_beside
from grls.serve.options import ServerOptions
from grls.serve.start import named_folders
from grls.serve.worker import Worker

_GRACE = 1.0
"""Seconds for which an old version still takes the jobs of requests that had found it."""


class BusyError(GrlsError):
    """A new version is being loaded already."""

    def __init__(self, name: str):
        super().__init__(f"a new version of {name!r} is being loaded; wait until it answers.")


class ChangedError(GrlsError):
    """A file that a version reads while it searches has been changed."""

    def __init__(self, name: str, file: str):
        super().__init__(
            f"{file} of the retriever {name!r} was changed while it is served, so no answer can be trusted: "
            "the operator has to put the folder right and load it again (POST /admin/reload). A folder is "
            "replaced as a whole, and nothing is written into it."
        )


class VersionError(GrlsError):
    """A new version cannot be used; the old version goes on."""


class Opened(NamedTuple):
    """The options with which folders are opened, and the callbacks of their threads.

    Attributes:
        server: Device and precision of models, and the limits of requests.
        watch: Called with the name of the retriever, the queries and the seconds of each batch; without the
            seconds when queries have joined a search.
        parts: Returns the counts of a retriever, by its name.
        prepare: Called with each version before it answers; an error refuses the version.
        say: Called with a line for each folder that is open.
    """

    server: ServerOptions
    watch: Callable[..., object] = lambda *_: None
    parts: Callable[[str], PartCounts | None] = lambda _: None
    prepare: Callable[[Version], object] = lambda _: None
    say: Callable[[str], object] = lambda _: None


def check_files(name: str, mapped: Mapping[Path, Stamp | None]) -> None:
    """Refuse to search where a file that searches read has been changed.

    A file that another one has replaced is still there for the process, as it was.
    """
    for file, then in mapped.items():
        now = stamp(file)
        if now is not None and then is not None and now.number == then.number and now != then:
            raise ChangedError(name, file.name)


class Version:
    """A retriever that answers, with its name, its number from 1, and its thread.

    ``mapped``: the files that it reads while it searches, with their stamps.
    """

    def __init__(
        self,
        name: str,
        number: int,
        searcher: Searcher,
        options: Opened,
        mapped: Mapping[Path, Stamp | None] = MappingProxyType({}),
    ):
        self.name, self.number, self.searcher = name, number, searcher
        limits, watch = options.server.limits, partial(options.watch, name)
        wait = limits.seconds / 2 if limits.wait is None else limits.wait
        check = partial(check_files, name, mapped)  # no method: the worker would hold an old version
        thread, spent = f"grls-serve-{name}", options.parts(name)
        self.worker = Worker(thread, limits.queue, limits.batch, watch, spent, wait, check)
        self._hopping: dict[HopOptions, Retriever] = {}

    def retriever(self, hops: HopOptions | None) -> Retriever:
        if hops is None:
            return self.searcher.retriever
        if hops not in self._hopping:
            self._hopping[hops] = hop_by_hop(self.searcher.retriever, hops)
        return self._hopping[hops]


class Served:
    """A retriever of the server; its folder is read again for a new version."""

    def __init__(self, name: str, folder: str | Path, options: Opened, number: int = 1):
        self.name, self.folder, self._options = name, Path(folder), options
        self._loading = Lock()
        self.version = self._load(number)

    def reload(self, accept: Callable[[Version], object] = lambda _: None) -> Version:
        """Load the folder again, and swap the new version in, unless ``accept`` raises for it."""
        if not self._loading.acquire(blocking=False):
            raise BusyError(self.name)
        try:
            old = self.version
            try:
                new = self._load(old.number + 1)
                first = new.searcher.corpus[0]  # one search, for the first words of a passage
                new.searcher.search(" ".join(f"{first.title} {first.text}".split()[:3]) or "a", 1)
                accept(new)
            except (GrlsError, RuntimeError, MemoryError, OSError, ValueError) as error:
                reason = error.text if isinstance(error, GrlsError) else str(error)
                raise VersionError(
                    f"the new version of {self.name!r} cannot be used, and version {old.number} goes on: "
                    f"{reason.replace(str(self.folder), self.name)}"
                ) from error
            self.version = new
            name = f"grls-serve-end-{self.name}"
            Thread(target=_end, args=(old.worker,), name=name, daemon=True).start()
            return new
        finally:
            self._loading.release()

    def _load(self, number: int) -> Version:
        with noting_mapped() as mapped:
            server = self._options.server
            searcher = load(self.folder, device=server.device, precision=server.precision)
        version = Version(self.name, number, searcher, self._options, mapped)
        self._options.prepare(version)
        return version


def _end(worker: Worker) -> None:
    sleep(_GRACE)
    worker.close()
    set_loaded_aside()


def open_served(options: Opened, numbers: Mapping[str, int] = MappingProxyType({})) -> dict[str, Served]:
    """Open the folders of a server under their names; ``numbers``: those of their versions, else 1."""
    served: dict[str, Served] = {}
    for name, folder in named_folders(options.server.folders).items():
        begun = perf_counter()
        served[name] = Served(name, folder, options, numbers.get(name, 1))
        searcher, seconds = served[name].version.searcher, perf_counter() - begun
        passages = counted(len(searcher.corpus), "passage")
        options.say(f"{name}: {searcher.retriever.kind}, {passages}, loaded in {seconds:.1f} s")
    set_loaded_aside()
    return served


def set_loaded_aside() -> None:
    """Collect garbage, and leave the loaded objects out of later collections.

    A full collection visits every object: with torch and a corpus in memory, hundreds of milliseconds in
    which no thread goes on. Called when retrievers have been loaded, and when an old version has ended.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


_READ = 1000
"""Passages whose metadata are looked at for fields."""


def sampled_metadata(corpus: Corpus) -> list[dict[str, Any]]:
    return corpus.metadata_of(range(0, len(corpus), len(corpus) // _READ + 1))


_EXAMPLES, _LONGEST = 6, 300


def queries_to_try(file: str | Path) -> tuple[str, ...]:
    return tuple(text.strip() for _, text in named_lines(Path(file), "a query a line"))


@lru_cache(maxsize=64)
def example_queries(folder: Path) -> list[str]:
    """The first test queries, else queries, of the data set that ``grls fit`` left at a folder."""
    try:
        data = data_beside(folder)
        if data is None:
            return []
        test = data / "qrels" / "test.tsv"
        judged = read_qrels(test).keys() if test.is_file() else None
        texts = (query.text for query in read_queries(data) if judged is None or query.id in judged)
        return list(islice((text for text in texts if len(text) <= _LONGEST), _EXAMPLES))
    except (GrlsError, OSError):  # a damaged data set does not keep the retriever from its work
        return []
