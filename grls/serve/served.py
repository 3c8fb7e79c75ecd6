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
from time import sleep
from types import MappingProxyType
from typing import Any

from grls.api.opening import load
from grls.api.searcher import Searcher
from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, read_queries
from grls.data.pseudo_queries import CUT
from grls.errors import GrlsError
from grls.io.files import Stamp, named_lines, noting_mapped, stamp
from grls.retrieve.base import Retriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.spec import data_beside
from grls.serve.guards import Metrics
from grls.serve.options import RequestLimits, ServerOptions
from grls.serve.worker import RefusalError, Worker, busy

_GRACE = 1.0
"""Seconds for which an old version still takes the jobs of requests that had found it."""


def reloading(name: str) -> RefusalError:
    """The refusal to load a new version while one is being loaded."""
    return busy(f"a new version of {name!r} is being loaded; wait until it answers.")


def check_files(name: str, mapped: Mapping[Path, Stamp | None]) -> None:
    """Refuse to search where a file that searches read has been changed.

    A file that another one has replaced is still there for the process, as it was.
    """
    for file, then in mapped.items():
        now = stamp(file)
        if now is not None and then is not None and now.number == then.number and now != then:
            raise RefusalError(
                503,
                f"{file.name} of the retriever {name!r} was changed while it is served, so no answer can be "
                "trusted: the operator has to put the folder right and load it again (POST /admin/reload). A "
                "folder is replaced as a whole, and nothing is written into it.",
            )


class Version:
    """A retriever that answers, with its name, its number from 1, and its thread.

    ``mapped``: the files that it reads while it searches, with their stamps.
    """

    def __init__(
        self,
        name: str,
        number: int,
        searcher: Searcher,
        limits: RequestLimits,
        metrics: Metrics,
        mapped: Mapping[Path, Stamp | None] = MappingProxyType({}),
    ):
        self.name, self.number, self.searcher = name, number, searcher
        watch, spend = partial(metrics.batch, name), partial(metrics.part, name)
        wait = limits.seconds / 2 if limits.wait is None else limits.wait
        check = partial(check_files, name, mapped)  # no method: the worker would hold an old version
        self.worker = Worker(f"grls-serve-{name}", limits.queue, limits.batch, watch, spend, wait, check)
        self._hopping: dict[HopOptions, Retriever] = {}

    @property
    def named(self) -> dict[str, Any]:
        """The fields of a response by which a client knows what has answered."""
        return {"retriever": self.name, "version": self.number}

    def retriever(self, hops: HopOptions | None) -> Retriever:
        if hops is None:
            return self.searcher.retriever
        if hops not in self._hopping:
            self._hopping[hops] = hop_by_hop(self.searcher.retriever, hops)
        return self._hopping[hops]


class Served:
    """A retriever of the server; its folder is read again for a new version.

    ``prepare`` is called with each version before it answers; an error refuses the version.
    """

    def __init__(
        self,
        name: str,
        folder: str | Path,
        options: ServerOptions,
        metrics: Metrics,
        prepare: Callable[[Version], object] | None = None,
        number: int = 1,
    ):
        self.name, self.folder = name, Path(folder)
        self._options, self._metrics, self._prepare = options, metrics, prepare
        self._loading = Lock()
        self.version = self._load(number)
        metrics.queues.labels(name).set_function(lambda: len(self.version.worker))

    def reload(self, accept: Callable[[Version], object] = lambda _: None) -> Version:
        """Load the folder again, and swap the new version in, unless ``accept`` raises for it."""
        if not self._loading.acquire(blocking=False):
            raise reloading(self.name)
        try:
            old = self.version
            try:
                new = self._load(old.number + 1)
                first = new.searcher.corpus[0]  # one search, for the first words of a passage
                new.searcher.search(" ".join(f"{first.title} {first.text}".split()[:3]) or "a", 1)
                accept(new)
            except (GrlsError, RuntimeError, MemoryError, OSError, ValueError) as error:
                reason = error.text if isinstance(error, GrlsError) else str(error)
                raise RefusalError(
                    422,
                    f"the new version of {self.name!r} cannot be used, and version {old.number} goes on: "
                    f"{reason.replace(str(self.folder), self.name)}",
                ) from error
            self.version = new
            name = f"grls-serve-end-{self.name}"
            Thread(target=_end, args=(old.worker,), name=name, daemon=True).start()
            return new
        finally:
            self._loading.release()

    def _load(self, number: int) -> Version:
        options = self._options
        with noting_mapped() as mapped:
            searcher = load(self.folder, device=options.device, precision=options.precision)
        version = Version(self.name, number, searcher, options.limits, self._metrics, mapped)
        if self._prepare is not None:
            self._prepare(version)
        return version


def _end(worker: Worker) -> None:
    sleep(_GRACE)
    worker.close()
    set_loaded_aside()


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
        queries = (query for query in read_queries(data) if judged is None or query.id in judged)
        texts = (query.text for query in queries if query.metadata != CUT)  # which are broken sentences
        return list(islice((text for text in texts if len(text) <= _LONGEST), _EXAMPLES))
    except (GrlsError, OSError):  # a damaged data set does not keep the retriever from its work
        return []
