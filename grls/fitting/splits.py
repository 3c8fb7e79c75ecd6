"""The data set that a run works on: read, checked, and divided into the splits that the run needs.

=====  ==================================================================================================
split  what for
=====  ==================================================================================================
train  to learn from; without training pairs, pseudo-queries
tune   to measure trainings and to find weights: half of a large dev split, otherwise there is none
dev    to choose a system (and, where there is no ``tune``, to tune); a part of train where there is none
test   for the report alone; it may be missing
=====  ==================================================================================================
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from grls.data.corpus import Corpus, corpus_file
from grls.data.dataset import (
    Qrels,
    evidence_qrels,
    has_qrels,
    read_qrels,
    read_queries,
    write_dataset,
)
from grls.data.dataset_check import check_data, format_faults
from grls.data.inputs.gold import WITHOUT_QRELS, refuse_without_gold
from grls.data.sentences import sentences
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.fitting.options import FitOptions
from grls.io.counts import counted

TRAIN, TUNE, DEV, TEST = "train", "tune", "dev", "test"

_DEV_MOST = 200
"""Queries that are split off as dev, at most; a fifth of train otherwise."""

_LARGE = 300
"""Dev queries from which one half tunes and the other chooses; of fewer, all do both."""

_PSEUDO = 2000
"""Passages that pseudo-queries are written for, at most."""
_LEAST, _DROPPED = 4, 0.3
"""Words that a pseudo-query keeps at least; the probability that a word is left out."""
_CUT = '{"pseudo": "sentence"}'
"""The metadata of pseudo-queries."""


@dataclass(frozen=True)
class SourceData:
    """A data set as it was given, without faults.

    Attributes:
        folder: Its folder.
        name: What results call it.
        corpus: The passages.
        queries: All queries.
        qrels: Judgements of ``train``, ``dev`` and ``test``, those that there are.
        notes: What counts as gold where that is not the qrels, for people.
    """

    folder: str
    name: str
    corpus: Corpus
    queries: list[Query]
    qrels: dict[str, Qrels]
    notes: tuple[str, ...] = ()

    def fingerprint(self) -> str:
        """Fingerprint of all that a run depends on."""
        digest = hashlib.sha256(self.corpus.fingerprint.encode())
        for part in (self.queries, self.qrels):
            digest.update(json.dumps(part, ensure_ascii=False).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class DividedData:
    """A data set with all the splits that a run needs.

    Attributes:
        queries: All queries of the splits.
        qrels: Split -> judgements.
        notes: What was changed, for people.
        pseudo: Splits that hold pseudo-queries.
    """

    queries: list[Query]
    qrels: dict[str, Qrels]
    notes: tuple[str, ...]
    pseudo: tuple[str, ...]

    @property
    def tune(self) -> str:
        """The split that tunes."""
        return TUNE if TUNE in self.qrels else DEV

    @property
    def reported(self) -> str:
        """The split of the report."""
        return TEST if TEST in self.qrels else DEV

    def counts(self) -> dict[str, int]:
        """Split -> number of queries."""
        return {split: len(judged) for split, judged in self.qrels.items()}


def read_source(data: str, options: FitOptions, name: str | None = None) -> SourceData:
    """Read a data set and refuse whatever is wrong with it, before any work is done.

    Args:
        data: Data set folder in BEIR's layout; queries and judgements may be missing. Without any qrels the
            evidence of the queries is their gold, as of the split to learn from, and every query needs it.
            Queries that no qrels name take no part.
        options: The names of the splits.
        name: What results call it; None: its folder.

    Raises:
        DataError: With all faults of queries and judgements, a passage without a text, a query without
            evidence where there are no qrels, or a split that is asked for and missing.
    """
    corpus = Corpus.read(data)
    _refuse_empty(corpus)
    faults = check_data(data, corpus) if Path(data).is_dir() else []
    if faults:
        raise DataError(
            f"{len(faults):,} faults in queries and qrels; correct them, then call again.\n"
            f"{format_faults(faults)}",
            data,
        )
    names = {TRAIN: options.train_split, DEV: options.dev_split, TEST: options.test_split}
    qrels = {split: found for split, name in names.items() if (found := _judged(data, split, name))}
    queries = read_queries(data) if qrels else _without_qrels(data)
    notes = _of_no_qrels(data, queries) if qrels else ()
    if not qrels and queries:
        gold = evidence_qrels(queries)
        without = [query.id for query in queries if query.id not in gold]
        refuse_without_gold(without, Path(data) / "queries.jsonl", hint=WITHOUT_QRELS)
        qrels = {TRAIN: gold}
        notes = (f"no qrels: the evidence of {counted(len(gold), 'query')} is the gold",)
    judged = {query for split in qrels.values() for query in split}
    asked = [query for query in queries if query.id in judged]
    return SourceData(data, name or data, corpus, asked, qrels, notes)


def _without_qrels(data: str) -> list[Query]:
    """The queries of a data set without qrels; none where it has qrels of other splits."""
    file = Path(data) / "queries.jsonl"
    wanted = file.is_file() and file.stat().st_size > 0 and not has_qrels(data)
    return read_queries(data) if wanted else []


def _of_no_qrels(data: str, queries: list[Query]) -> tuple[str, ...]:
    """The note of queries that no qrels of the data set name."""
    files = sorted((Path(data) / "qrels").glob("*.tsv"))
    named = {name for file in files for name in read_qrels(file)}
    left = sum(query.id not in named for query in queries)
    return (f"{counted(left, 'query is', 'queries are')} in no qrels, and left out",) if left else ()


def _judged(data: str, split: str, name: str) -> Qrels:
    """The judgements of a split; none where a split of the usual name is missing."""
    file = Path(data) / "qrels" / f"{name}.tsv"
    return {} if name == split and not file.is_file() else read_qrels(file)


def _refuse_empty(corpus: Corpus) -> None:
    empty = (p.id for p in corpus if not p.text.strip() and not p.title.strip())
    ids = list(islice(empty, 4))
    if ids:
        shown = ", ".join(map(repr, ids[:3])) + (", …" if len(ids) > 3 else "")
        raise DataError(
            f"passages without text or title: {shown}; nothing can be learned of them. Remove them, or give "
            "them a text.",
            corpus.source,
        )


def divide(source: SourceData, seed: int) -> DividedData:
    """Make the splits that a run needs of those that there are; the same for the same seed.

    Args:
        source: The data set.
        seed: Seed of all draws.

    Raises:
        DataError: No query can be had, not even from the sentences of passages.
    """
    queries, qrels = list(source.queries), {**source.qrels}
    notes, pseudo = [*source.notes, *_without_repeats(qrels)], tuple[str, ...]()
    if TRAIN not in qrels:
        made = _pseudo_queries(source, seed)
        queries += made
        qrels[TRAIN] = {query.id: dict.fromkeys(query.evidence, 1) for query in made}
        pseudo = (TRAIN,)
        notes.append(
            f"no training queries: {counted(len(made), 'pseudo-query')}, parts of sentences of the passages, "
            "stand in for them, and results are worse than with real ones"
        )
    if DEV not in qrels:
        pseudo += (DEV,) if pseudo else ()
        notes.append(_split_off(qrels, random.Random(seed)))
    if len(qrels[DEV]) >= _LARGE:
        notes.append(_halved(qrels, random.Random(seed)))
    if TEST not in qrels:
        notes.append("no test queries: the report is on dev, which the choice was made on")
    order = [name for name in (TRAIN, TUNE, DEV, TEST) if name in qrels]
    return DividedData(queries, {name: qrels[name] for name in order}, tuple(notes), pseudo)


def _pseudo_queries(source: SourceData, seed: int) -> list[Query]:
    made = sentence_queries(source.corpus, _PSEUDO, seed, {query.id for query in source.queries})
    if not made:
        raise DataError(
            "no passage has a sentence, so no query can be made of them: give queries with their passages "
            "(queries.jsonl and qrels/train.tsv).",
            source.folder,
        )
    return made


def sentence_queries(corpus: Corpus, count: int, seed: int, taken: Collection[str]) -> list[Query]:
    """Write queries for passages that are drawn at random: parts of their sentences.

    A query is a sentence of the passage that answers it, with some of its words left out (the inverse cloze
    task, Lee et al. 2019, arXiv 1906.00300, keeps all of them): who searches knows some words of what there
    is. Such queries are easier than real ones, above all for BM25.

    Args:
        corpus: The passages.
        count: Number of passages to draw; a passage without a sentence gets no query.
        seed: Seed of all draws.
        taken: Ids that other queries have.
    """
    draw = random.Random(seed)
    numbers = sorted(draw.sample(range(len(corpus)), min(count, len(corpus))))
    ids = (name for number in itertools.count(1) if (name := f"pseudo-{number}") not in taken)
    made = ((passage.id, _query(passage, draw)) for passage in corpus.passages(numbers))
    return [Query(next(ids), text, (name,), metadata=_CUT) for name, text in made if text]


def _query(passage: Passage, draw: random.Random) -> str:
    """A part of one of its sentences; empty if it has none."""
    parts = sentences(passage.text) or [passage.title]
    words = draw.choice(parts).split()
    if len(words) <= _LEAST:
        return " ".join(words)
    kept = [place for place in range(len(words)) if draw.random() >= _DROPPED]
    if len(kept) < _LEAST:
        kept = sorted(draw.sample(range(len(words)), _LEAST))
    return " ".join(words[place] for place in kept)


def _without_repeats(qrels: dict[str, Qrels]) -> list[str]:
    """Take queries of a later split out of the earlier ones, so that none is learned that is asked."""
    notes = []
    for earlier, later in ((TRAIN, TEST), (DEV, TEST), (TRAIN, DEV)):
        both = qrels.get(earlier, {}).keys() & qrels.get(later, {}).keys()
        if both:
            qrels[earlier] = {query: grades for query, grades in qrels[earlier].items() if query not in both}
            several = f"queries of {earlier} are in {later} as well, and are left out of it"
            notes.append(
                counted(len(both), several.replace("queries", "query").replace(" are ", " is "), several)
            )
            if not qrels[earlier]:
                del qrels[earlier]
    return notes


def _split_off(qrels: dict[str, Qrels], draw: random.Random) -> str:
    """Move a part of train to dev; returns what was done."""
    every = list(qrels[TRAIN])
    count = max(1, min(_DEV_MOST, len(every) // 5))
    chosen = set(draw.sample(every, count))
    qrels[DEV] = {query: qrels[TRAIN][query] for query in every if query in chosen}
    if count == len(every):
        return "no dev queries, and a single training query: it is both"
    qrels[TRAIN] = {query: qrels[TRAIN][query] for query in every if query not in chosen}
    return f"no dev queries: {count:,} of the {counted(len(every), 'training query')} are split off as dev"


def _halved(qrels: dict[str, Qrels], draw: random.Random) -> str:
    every = list(qrels[DEV])
    tuning = set(draw.sample(every, len(every) // 2))
    qrels[TUNE] = {query: qrels[DEV][query] for query in every if query in tuning}
    qrels[DEV] = {query: qrels[DEV][query] for query in every if query not in tuning}
    return (
        f"of {counted(len(every), 'dev query')} {len(tuning):,} tune and {len(every) - len(tuning):,} choose"
    )


def write_divided(source: SourceData, divided: DividedData, folder: Path) -> None:
    """Write the data set with its splits, atomically."""
    if corpus_file(folder).resolve() == corpus_file(source.folder).resolve():
        raise DataError("the data set is in the output of this run: give another output.", source.folder)
    write_dataset(folder, source.corpus, divided.queries, divided.qrels)
