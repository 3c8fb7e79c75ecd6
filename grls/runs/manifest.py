"""What made a run: a small JSON file beside it, ``NAME.info.json`` for ``NAME.trec`` and ``NAME.jsonl``.

Runs that are fused or compared must be of the same corpus and the same queries. A TREC run says neither, so
retrieval writes both fingerprints here, with the checksums of the two files: a manifest that was left behind
by another run is refused. A run of another tool has no manifest; its ids are checked instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from grls.data.types import Query
from grls.data.types import Steps as Steps
from grls.errors import DataError
from grls.io.files import read_json, sha256, write_json

FORMAT = 1
ENDINGS = (".trec", ".jsonl")


@dataclass(frozen=True)
class RunInfo:
    """What made a run.

    Args:
        system: What retrieved: ``generator``, ``biencoder``, ``bm25``, ``hybrid``, ``ensemble``, or another
            kind.
        name: What reports call the run.
        steps: ``single``, ``ranked`` (a ranking by hops), ``fixed`` (a number of hops) or ``dynamic`` (hops
            until DONE).
        corpus: Fingerprint of the corpus (:attr:`grls.data.corpus.Corpus.fingerprint`); empty where unknown.
        queries: Fingerprint of the queries (:func:`fingerprint_queries`); empty where unknown.
        data: The data set folder as the option named it; empty where unknown.
        split: Which queries; None for all.
        score_mode: What the scores mean.
        stages: Training stages of the model (``memorise``, ``retrieve``, ``biencoder``); none where it is
            used untrained.
        members: Names of the runs or retrievers of an ensemble.
        seconds: Wall-clock seconds of the retrieval, loading left out.
        options: The options that matter, for the record.
        files: Ending -> SHA-256 of the files this belongs to; filled in by :func:`write_info`.
        retriever: Fingerprint of the retriever and its filters, whatever ends its chains or rankings; empty
            where unknown.
        limit: How many first queries of the split; None for all.
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
    limit: int | None = None

    @property
    def asked(self) -> str:
        """The queries that were asked, in words: data set, split, and how many first ones."""
        return f"{self.data}, {which_queries(self.split, self.limit)}"


def which_queries(split: str | None, limit: int | None) -> str:
    """Queries of a data set in words, by their split (None: all) and the number of its first ones."""
    whole = "all queries" if split is None else f"split {split}"
    return whole if limit is None else f"the first {limit:,} of {whole}"


def fingerprint_queries(queries: Sequence[Query]) -> str:
    """SHA-256 over ids and texts, whatever the order."""
    digest = hashlib.sha256()
    for pair in sorted((query.id, query.text) for query in queries):
        digest.update(json.dumps(pair, ensure_ascii=False).encode())
    return digest.hexdigest()


def differ(fingerprint: str, other: str) -> bool:
    """Whether two fingerprints differ; the empty one is unknown and differs from none."""
    return bool(fingerprint and other) and fingerprint != other


def difference(info: RunInfo, other: RunInfo) -> Literal["corpus", "queries", "split"] | None:
    """The first thing in which two runs differ, so that they cannot be compared; None: in nothing known.

    Splits count only where the queries are unknown: two names may be of the same queries.
    """
    if differ(info.corpus, other.corpus):
        return "corpus"
    if differ(info.queries, other.queries):
        return "queries"
    known = info.queries and other.queries
    return "split" if not known and differ(info.split or "", other.split or "") else None


def info_file(run: str | Path) -> Path:
    """The manifest's path for a run (``NAME.trec``, ``NAME.jsonl``) or for ``NAME``."""
    path = Path(run)
    return path.with_name((path.stem if path.suffix in ENDINGS else path.name) + ".info.json")


def write_info(output: str | Path, info: RunInfo, endings: Sequence[str] = ENDINGS) -> None:
    """Write ``OUTPUT.info.json`` for the run files of that name.

    Args:
        output: Path of the run files without ending.
        info: What made them.
        endings: Those of the files that were written; a file with another one stays unknown to the manifest.
    """
    files = {end: Path(f"{output}{end}") for end in endings}
    sums = {end: sha256(file) for end, file in files.items() if file.is_file()}
    write_json(f"{output}.info.json", {"format": FORMAT, **asdict(replace(info, files=sums))})


def read_info(run: str | Path) -> RunInfo | None:
    """The manifest of a run; None where it has none.

    Raises:
        DataError: The manifest is malformed, or belongs to other files of that name.
    """
    file = info_file(run)
    if not file.is_file():
        return None
    record = read_json(file)
    try:
        if record.pop("format") != FORMAT:
            raise ValueError("unknown format")
        info = RunInfo(**{**record, "stages": tuple(record["stages"]), "members": tuple(record["members"])})
        # JSON says nothing of types.
        if info.steps not in get_args(Steps):
            raise ValueError(f"unknown steps {info.steps!r}")
        texts = [
            info.system,
            info.name,
            info.corpus,
            info.queries,
            info.data,
            info.score_mode,
            info.retriever,
        ]
        texts += [*info.stages, *info.members]
        if not all(isinstance(text, str) for text in texts) or not isinstance(info.split, str | None):
            raise ValueError("a text is none")
        if not isinstance(info.seconds, int | float) or isinstance(info.seconds, bool):
            raise ValueError(f"seconds are {info.seconds!r}")
        if info.limit is not None and (type(info.limit) is not int or info.limit < 1):
            raise ValueError(f"the limit is {info.limit!r}")
        if not isinstance(info.options, dict) or not isinstance(info.files, dict):
            raise ValueError("options or files are no object")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"expected the manifest of a run ({error}); make the run again, or remove this file.", file
        ) from None
    path = Path(run)
    if path.is_file() and info.files.get(path.suffix) != sha256(path):
        raise DataError(
            f"{path} has changed since this manifest was written; make the run again, or remove the manifest "
            "where the change is meant.",
            file,
        )
    return info
