"""The manifest of a run, retrieval portion by portion, and the files of a run.

A run is ``NAME.trec``, ``NAME.jsonl`` with the texts, and the manifest ``NAME.info.json`` with the
fingerprints of corpus and queries and the checksums of the other files, so that a manifest left by another
run is refused. While a run is retrieved, ``OUTPUT.retrieved.jsonl`` keeps the results
(:mod:`grls.io.work`), so that a killed run goes on and memory does not grow. A run of one portion
needs no such file.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.types import Query, Steps
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.io.arguments import Count, options_of
from grls.io.files import read_json, refuse_unwritable, sha256, write_json
from grls.io.jsonl import read_jsonl, write_line
from grls.io.progress import counted
from grls.io.timing import PartCounts, counting
from grls.io.work import GrowingFile, Record, all_done
from grls.runs.results import Retrieved, result_of, result_record, write_results
from grls.runs.trec import write_run

log = logging.getLogger(__name__)


FORMAT = 1
ENDINGS, ANSWERS = (".trec", ".jsonl"), ".answers.jsonl"


@dataclass(frozen=True)
class RunInfo:
    """The manifest of a run: data, retriever, options and files. A text is empty where it is unknown.

    Args:
        system: What retrieved: ``generator``, ``biencoder``, ``bm25``, ``hybrid``, ``ensemble``, or another
            kind.
        name: What reports call the run.
        steps: ``single``, ``ranked`` (a ranking by hops), ``fixed`` (a number of hops) or ``dynamic`` (hops
            until DONE).
        corpus: Fingerprint of the corpus (:attr:`grls.data.corpus.Corpus.fingerprint`).
        queries: Fingerprint of the queries (:func:`fingerprint_queries`).
        data: The data set folder as the option named it.
        split: Which queries; None for all.
        score_mode: What the scores mean.
        stages: Training stages of the model (``memorise``, ``retrieve``, ``biencoder``).
        members: Names of the runs or retrievers of an ensemble.
        seconds: Wall-clock seconds of the retrieval, loading left out.
        options: The options that matter, for the record.
        files: Ending -> SHA-256 of the files this belongs to; filled in by :func:`write_info`.
        retriever: Fingerprint of the retriever and its filters.
        limit: How many first queries of the split; None for all.
        computed_tokens: Tokens that language models read and wrote for all queries; None where unknown.
        index_seconds: Seconds that the index took; None where unknown.
        search: The search that decoded and its device, ``fast on cpu``; empty where nothing is decoded.
    """

    system: str
    name: str
    steps: Steps
    corpus: str
    queries: str
    data: str
    split: str | None
    score_mode: str
    stages: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    seconds: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    retriever: str = ""
    limit: Count | None = None
    computed_tokens: int | None = None
    index_seconds: float | None = None
    search: str = ""

    @property
    def query_set(self) -> str:
        return f"{self.data}, {which_queries(self.split, self.limit)}"


def which_queries(split: str | None, limit: int | None) -> str:
    queries = "all queries" if split is None else f"split {split}"
    return queries if limit is None else f"the first {limit:,} of {queries}"


def fingerprint_queries(queries: Sequence[Query]) -> str:
    """SHA-256 over ids and texts, whatever the order."""
    digest = hashlib.sha256()
    for pair in sorted((query.id, query.text) for query in queries):
        digest.update(json.dumps(pair, ensure_ascii=False).encode())
    return digest.hexdigest()


def differ(fingerprint: str, other: str) -> bool:
    """Whether two fingerprints differ; the empty one is unknown and differs from none."""
    return bool(fingerprint and other) and fingerprint != other


def info_file(run: str | Path) -> Path:
    path = Path(run)
    return path.with_name((path.stem if path.suffix in ENDINGS else path.name) + ".info.json")


def write_info(output: str | Path, info: RunInfo, endings: Sequence[str] = ENDINGS) -> None:
    files = {end: Path(f"{output}{end}") for end in endings}
    sums = {end: sha256(file) for end, file in files.items() if file.is_file()}
    write_json(f"{output}.info.json", {"format": FORMAT, **asdict(replace(info, files=sums))})


def read_info(run: str | Path) -> RunInfo | None:
    file = info_file(run)
    if not file.is_file():
        return None
    record = read_json(file)
    try:
        if record.pop("format") != FORMAT:
            raise ValueError("unknown format")
        info = options_of(RunInfo, record, "manifest")
    except (AttributeError, ConfigError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"expected the manifest of a run ({str(error).rstrip('.')}); make the run again, or remove this "
            "file.",
            file,
        ) from None
    path = Path(run)
    if path.is_file() and info.files.get(path.suffix) != sha256(path):
        raise DataError(
            f"{path} has changed since this manifest was written; make the run again, or remove the manifest "
            "where the change is meant.",
            file,
        )
    return info


def split_asked(run: str, info: RunInfo | None, split: str | None) -> str:
    """The split of a run: that of its manifest, else ``split``, else ``test``."""
    made_for = None if info is None else info.split
    if None not in (split, made_for) and split != made_for:
        raise MismatchError(
            f"{run} is of the split {made_for}, and {Option('split')} asks for {split}; give "
            f"{Option('split', made_for)}, or a run of the split {split}."
        )
    return made_for or split or "test"


PORTION = 512
"""Queries between two points where a run can go on."""


class Portions(NamedTuple):
    """The results of all portions, for each query in order; ``retrieved`` may be walked again.

    Seconds and tokens (None: unknown) include those of earlier, killed runs.
    """

    retrieved: Iterable[Retrieved]
    seconds: float
    tokens: int | None = None


class KeptResults:
    """The results in files with a record a query, read anew whenever they are walked.

    A growing file may hold more records than there are queries.
    """

    def __init__(
        self,
        files: GrowingFile | Sequence[Path],
        queries: Sequence[Query],
        read: Callable[[Record], Retrieved] = result_of,
    ):
        self._files = files
        self._queries = queries
        self._read = read

    def _records(self) -> Iterator[tuple[Path, Record]]:
        if isinstance(self._files, GrowingFile):
            yield from ((self._files.path, record) for record in self._files)
        else:
            yield from ((file, record) for file in self._files for _, record in read_jsonl(file))

    def __iter__(self) -> Iterator[Retrieved]:
        records = islice(self._records(), len(self._queries))
        for query, (file, record) in zip(self._queries, records, strict=True):
            try:
                result = self._read(record)
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(
                    f"the record of query {query.id!r} is damaged ({error!r}): remove the file, and run the "
                    "command again.",
                    file,
                ) from None
            yield result


def write_retrieved(retrieved: Iterable[Retrieved], file: Path) -> None:
    with file.open("w", encoding="utf-8", newline="\n") as stream:
        for result in retrieved:
            write_line(stream, result_record(result))


@contextmanager
def in_portions(
    output: str,
    settings: Callable[[], dict[str, Any]],
    queries: Sequence[Query],
    retrieve: Callable[[slice], list[Retrieved]],
) -> Iterator[Portions]:
    """Retrieve for all queries, and go on where a killed run of the same settings stopped.

    ``settings`` returns everything that the results depend on, as JSON values. The block saves the results.
    """
    path = Path(f"{output}.retrieved.jsonl")
    counts = PartCounts()

    def counted_results(part: slice) -> list[Retrieved]:
        with counting(counts):
            return retrieve(part)

    def computed() -> dict[str, int]:
        return {"computed": counts["encoder"].tokens + counts["decoder"].tokens}

    def records(rows: Sequence[int], _: Callable[[int], object]) -> list[Record]:
        return [result_record(result) for result in counted_results(slice(rows[0], rows[-1] + 1))]

    if len(queries) <= PORTION and not path.exists():
        begun = perf_counter()
        results = counted_results(slice(0, len(queries)))
        yield Portions(results, perf_counter() - begun, computed()["computed"])
        return
    with all_done(
        range(len(queries)), records, path, settings(), lambda row: {"query_id": queries[row].id}, PORTION,
        "retrieve", "queries", spent=computed,
    ) as file:  # fmt: skip
        spent = file.spent()
        yield Portions(KeptResults(file, queries), spent["seconds"], spent["computed"])
        file.remove()


def save_retrieved(
    output: str | Path,
    queries: Sequence[Query],
    corpus: Corpus,
    retrieved: Iterable[Retrieved],
    info: RunInfo,
) -> str:
    """Write ``output.jsonl``, ``output.trec`` and ``output.info.json``; returns a line for the user.

    A fixed number of hops is written as a ranking. Dynamic chains are written as chains, and so are chains
    that may repeat a passage. An id with white space has no place in a TREC run: then a warning says that
    only JSONL is written.
    """
    dynamic = info.steps == "dynamic"
    repeats = info.options.get("repeat") is True and info.options.get("pool") is not True
    chained = dynamic or (info.steps == "fixed" and repeats)
    results = retrieved if chained else (result._replace(chain=None) for result in retrieved)
    write_results(f"{output}.jsonl", queries, corpus, info.score_mode, results)
    if dynamic:
        done = [result.chain.done for result in retrieved if result.chain is not None]
        missing = len(done) - sum(done)
        if missing > len(done) / 2:  # most chains were ended by the limit of hops
            log.warning(
                "%d of %d chains ended without DONE, most likely at the limit of hops: was the model trained "
                "with it (%s; a bi-encoder with %s)? If it was, let `grls tune` find the bias on DONE, or "
                "raise %s.",
                missing,
                len(done),
                Option("data.done", True),
                Option("fit.done", True),
                Option("hops.max"),
            )
    endings: Sequence[str] = ENDINGS
    try:
        write_run(f"{output}.trec", ((result.query_id, result.hits) for result in retrieved))
    except DataError as error:  # an id that holds white space; all else is refused above
        Path(f"{output}.trec").unlink(missing_ok=True)  # an earlier run's
        log.warning("%s.trec is not written; %s.jsonl holds everything: %s", output, output, error)
        endings = (".jsonl",)
    write_info(output, info, endings)
    files = ", ".join(f"{output}{ending}" for ending in endings)
    return f"{files}: {counted(len(queries), 'query')}, score mode {info.score_mode}, {info.seconds:.1f} s"


def refuse_own_output(output: str, runs: Sequence[str]) -> None:
    """Refuse an output that would overwrite a run that is read, or that can be no name."""
    refuse_unwritable(output)
    for run in runs:
        if info_file(run).resolve() == Path(f"{output}.info.json").resolve():
            raise ConfigError(
                f"{Option('output', output)} would replace {run}, which is read; choose another name."
            )
