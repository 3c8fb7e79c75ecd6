"""The data set that a run works on: read, checked, divided into the splits that the run needs, and described.

=====  ==================================================================================================
split  what for
=====  ==================================================================================================
train  to learn from; without training pairs, pseudo-queries: written by a language model, or cut
tune   to measure trainings and to find weights: half of dev where it is large, or written
dev    to choose a system (and, where there is no ``tune``, to tune); a part of train where there is none
test   for the report alone; it may be missing
links  beside written questions: sentences without a name that they hold; a training may not lose on them
=====  ==================================================================================================

A query asks for hops where it has several gold passages: the second may be found only with the first.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

from grls.data.corpus import Corpus
from grls.data.dataset import (
    Qrels,
    evidence_qrels,
    gold_passages,
    own_told,
    passage_queries,
    read_queries,
    refuse_breaks,
    relevant,
    write_dataset,
)
from grls.data.inputs.gold import queries_and_qrels, refuse_without_gold
from grls.data.inputs.splits import DEV, TEST, TRAIN, given_data
from grls.data.language import guess
from grls.data.pseudo_queries import LINKED, masked_queries, sentence_queries
from grls.data.types import Passage, Query
from grls.data.words import count as count_words
from grls.errors import DataError
from grls.fitting.options import FitOptions
from grls.io.progress import counted

TUNE, LINKS = "tune", "links"
CUT, WRITTEN, MASKED = "cut sentences", "written questions", "masked names"
"""What results call dev queries that are parts of sentences of passages, and those of a language model."""

_DEV_LEAST, _DEV_MOST = 30, 200
"""Queries that are split off as dev: a fifth of train within these bounds, but no more than half of it."""
_LARGE = 300  # dev queries from which one half tunes and the other chooses; of fewer, all do both
_PSEUDO = 2000  # passages that pseudo-queries are written for, at most
LEAST_QUERIES = 8  # fewer queries to learn from train no model: a batch would hold no other query's passages
_SAMPLE = 2000  # passages whose words are counted, evenly spread over the corpus
_ASKS = 0.3  # the share of queries with several gold passages from which a data set asks for hops
_SHORT = 40
"""The most words of a passage, on average, that is a short fact: reading it to its end costs little."""


def sizes_line(counts: Mapping[str, int], pseudo: Mapping[str, str] = MappingProxyType({})) -> str:
    """Numbers of queries by their split, with what those are that are ``pseudo``."""
    return ", ".join(
        counted(count, split[:-1])
        if split in (CUT, WRITTEN)
        else f"{count:,} {split}{f' ({pseudo[split]})' if split in pseudo else ''}"
        for split, count in counts.items()
    )


@dataclass(frozen=True)
class SplitData:
    """A data set without faults, divided into the splits that a run needs, and what it is like.

    Attributes:
        name: What results call it.
        qrels: Split -> judgements.
        fingerprint: Of all that a run depends on, as it was given.
        notes: What counts as gold where that is not the qrels, and what was changed.
        pseudo: Split -> what its queries are, where they are not labelled: ``cut sentences`` of passages, or
            ``written questions`` of a language model.
        own: Ids of the queries that are passages (:func:`~grls.data.dataset.passage_queries`).
        words: Mean number of words of a passage, its title included.
        language: ISO 639-1 code of the corpus' language; None: it cannot be guessed.
        gold: Mean number of gold passages of a training query; a pseudo-query has one.
        several: Share of training queries with several gold passages.
        gold_hops: Number of hops that find nearly all gold passages of a query; 1: few have several.
        taught: Divides the same data with written questions in place of cut sentences.
    """

    name: str
    corpus: Corpus
    queries: list[Query]
    qrels: dict[str, Qrels]
    fingerprint: str
    notes: tuple[str, ...]
    pseudo: Mapping[str, str]
    own: frozenset[str]
    words: float
    language: str | None
    gold: float
    several: float
    gold_hops: int
    taught: Callable[[Sequence[Query]], SplitData]

    def counts(self) -> dict[str, int]:
        return {split: len(judged) for split, judged in self.qrels.items()}

    def written(self, folder: Path) -> SplitData:
        """The same with the corpus of a folder, into which it is written if it is not there.

        Where cut sentences were there first, questions take their place, and what ranked those or learned
        from them goes: all members but ``bm25`` and ``base``, with their hops.
        """
        there = (folder / "corpus.jsonl").is_file()
        texts = [query.text for query in self.queries]
        if not there or (self.pseudo and [query.text for query in read_queries(folder)] != texts):
            for old in ("runs", "stages/*/", "members/[!b]*"):
                for path in folder.parent.glob(old):
                    shutil.rmtree(path, ignore_errors=True)
            write_dataset(folder, self.corpus, self.queries, self.qrels)
        return replace(self, corpus=Corpus.read(folder))

    @property
    def tune(self) -> str:
        return TUNE if TUNE in self.qrels else DEV

    @cached_property
    def links(self) -> float:
        """Share of passages whose texts name others (:class:`~grls.data.links.Links`); 0 where every question
        has one gold passage. Of many passages this takes long: it is part of the run.
        """
        return self.corpus.links().share if self.several >= _ASKS or self.unlabelled else 0.0

    @property
    def most_hops(self) -> int:
        """Hops to try; 1: the data ask for none. Without questions two, where passages have links."""
        return (2 if self.linked else 1) if self.unlabelled else self.gold_hops

    @property
    def hops(self) -> bool:
        return self.most_hops > 1

    @property
    def linked(self) -> bool:
        """Whether passages name each other, so that hops that follow names need no training."""
        return self.links >= LINKED

    @property
    def unlabelled(self) -> bool:
        """Whether dev queries are not labelled: on cut sentences BM25 wins, whatever wins on questions."""
        return DEV in self.pseudo

    @property
    def dev_kind(self) -> str:
        """What a dev query is called."""
        return self.pseudo[DEV][:-1] if self.unlabelled else "dev query"

    @property
    def untaught(self) -> str | None:
        if self.pseudo.get(DEV) == CUT:
            return "without labelled questions nothing tells whether a training helps"
        return f"give {LEAST_QUERIES} training queries or more" if self.few else None

    @property
    def few(self) -> bool:
        return len(self.qrels[TRAIN]) < LEAST_QUERIES

    @property
    def short(self) -> bool:
        return self.words <= _SHORT

    def lines(self) -> list[str]:
        several = f"{self.several:.0%} with several" if self.several else "one each"
        several += f" (hops are tried from {_ASKS:.0%} on)" if self.several and not self.hops else ""
        language, sizes = self.language or "language unknown", sizes_line(self.counts(), self.pseudo)
        links = f", {self.links:.0%} of them with links" if self.links else ""
        return [
            *self.notes,
            f"{counted(len(self.corpus), 'passage')} of {self.words:.0f} words ({language}){links}",
            f"queries: {sizes}; gold passages: {self.gold:.1f} a query, {several}",
        ]


def read_data(
    corpus: Any, options: FitOptions, queries: Any = None, gold: Any = None, dev: Any = None, test: Any = None
) -> SplitData:
    """Read what is given (the arguments of :func:`grls.fit`), refuse what is wrong with it, and divide it."""
    names = options.train_split, options.dev_split, options.test_split
    given = given_data(corpus, queries, gold, dev, test, names)
    return divided(given.name, given.corpus, *queries_and_qrels(given.splits), options.seed, given.notes)


def divided(
    name: str,
    corpus: Corpus,
    queries: list[Query],
    qrels: dict[str, Qrels],
    seed: int,
    notes: tuple[str, ...] = (),
    written: Sequence[Query] = (),
) -> SplitData:
    """Make the splits that a run needs of those that are given; the same for the same seed.

    ``written`` are questions of a language model, to learn from where there are no labelled ones.
    """
    taught = partial(divided, name, corpus, queries, qrels, seed, notes)
    empty = (passage.id for passage in corpus if not passage.text.strip() and not passage.title.strip())
    if ids := list(islice(empty, 4)):
        shown = ", ".join(map(repr, ids[:3])) + (", …" if len(ids) > 3 else "")
        raise DataError(
            f"passages without text or title: {shown}; nothing can be learned of them. Remove them, or give "
            "them a text.",
            corpus.source,
        )
    refuse_breaks(qrels, name)
    for judged in qrels.values():
        refuse_without_gold([query for query, grades in judged.items() if not relevant(grades)], name)
    digest = hashlib.sha256(corpus.fingerprint.encode())
    for part in (queries, qrels):
        digest.update(json.dumps(part, ensure_ascii=False).encode())
    queries, qrels, changes, pseudo = [*queries], {**qrels}, [*notes], dict[str, str]()
    for earlier, later in ((TRAIN, TEST), (DEV, TEST), (TRAIN, DEV)):  # none is learned that is asked
        both = qrels.get(earlier, {}).keys() & qrels.get(later, {}).keys()
        if both:
            are = counted(len(both), f"query of {earlier} is", f"queries of {earlier} are")
            changes.append(f"{are} in {later} as well, and left out of {earlier}")
            _, qrels[earlier] = _parted(qrels[earlier], both)
            if not qrels[earlier]:
                del qrels[earlier]
    if TRAIN not in qrels:
        asked = "training queries" if DEV in qrels else "labelled questions"
        taken = {query.id for query in queries}
        kind, made = WRITTEN, [query for query in written if query.id not in taken]
        told = f"no {asked}: {counted(len(made), WRITTEN[:-1])} of a language model stand in for them"
        if not made:
            kind, made = CUT, sentence_queries(corpus, _PSEUDO, seed, taken)
            worse = "results are worse" if DEV in qrels else "BM25 finds more"
            told = (
                f"no {asked}: {counted(len(made), 'pseudo-query')}, parts of sentences of the passages, "
                f"stand in for them, and {worse} than with real ones"
            )
        if not made:
            raise DataError(
                "no passage has a sentence, so no query can be made of them: give queries with their "
                "passages (queries.jsonl and qrels/train.tsv).",
                name,
            )
        changes.append(told)
        queries += made
        qrels[TRAIN] = evidence_qrels(made)
        pseudo = dict.fromkeys((TRAIN,) if DEV in qrels else (TRAIN, DEV), kind)
        if kind == WRITTEN and DEV in pseudo and (masked := masked_queries(corpus, seed, taken)):
            queries += masked
            qrels[LINKS], pseudo[LINKS] = evidence_qrels(masked), MASKED
    if DEV not in qrels:
        whole = len(qrels[TRAIN])
        least = 1 if CUT in pseudo.values() else max(1, min(_DEV_LEAST, whole // 2))
        size = max(least, min(_DEV_MOST, whole // 5))
        if size == whole:
            qrels[DEV] = qrels[TRAIN]
            told = "the single training query is both"
        else:
            drawn = _of_passages(made, size, seed) if pseudo else _drawn(qrels[TRAIN], size, seed)
            qrels[DEV], qrels[TRAIN] = _parted(qrels[TRAIN], drawn)
            told = f"{size:,} of the {counted(whole, 'training query')} are split off as dev"
        if not pseudo:
            changes.append(f"no dev queries: {told}")
    if (whole := len(qrels[DEV])) >= (2 if pseudo.get(DEV) == WRITTEN else _LARGE):
        drawn = _drawn(qrels[DEV], whole // 2, seed)
        if DEV in pseudo:
            drawn = _of_passages([query for query in made if query.id in qrels[DEV]], whole // 2, seed)
            pseudo[TUNE] = WRITTEN
        qrels[TUNE], qrels[DEV] = _parted(qrels[DEV], drawn)
        told = counted(whole, "written question" if DEV in pseudo else "dev query")
        changes.append(f"of {told} {len(qrels[TUNE]):,} tune and {len(qrels[DEV]):,} choose")
    if TEST not in qrels:
        told = {
            None: "dev, which the choice was made on",
            CUT: f"{CUT}, on which BM25 wins",
            WRITTEN: f"{WRITTEN}, which are easier than real ones",
        }[pseudo.get(DEV)]
        changes.append(f"no test queries: the report is on {told}")
    qrels = {name: qrels[name] for name in (TRAIN, TUNE, DEV, TEST, LINKS) if name in qrels}
    known = {query.id: query for query in queries}
    learned = qrels[DEV if TRAIN in pseudo and DEV not in pseudo else TRAIN]
    golds = [len(gold_passages(known[query], learned)) for query in learned]
    gold, several = fmean(golds), fmean(size > 1 for size in golds)
    gold_hops = max(2, min(max(golds), round(2 * gold), 4)) if several >= _ASKS else 1
    every = {query: grades for judged in qrels.values() for query, grades in judged.items()}
    own = passage_queries(queries, every, corpus)
    if own:
        changes.append(own_told(len(own), "the corpus"))
    sample = spread(corpus, _SAMPLE)
    return SplitData(
        name, corpus, queries, qrels, digest.hexdigest(), tuple(changes), pseudo, own,
        words=fmean(count_words(f"{passage.title} {passage.text}") for passage in sample),
        language=guess(passage.text for passage in sample),
        gold=gold, several=several, gold_hops=gold_hops, taught=taught,
    )  # fmt: skip


def _drawn(qrels: Qrels, size: int, seed: int) -> set[str]:
    return set(random.Random(seed).sample(list(qrels), size))


def _of_passages(queries: Collection[Query], size: int, seed: int) -> set[str]:
    """All queries of passages that are drawn until there are so many, or a few more: the others have none of
    these passages.
    """
    chosen = set[str]()
    passages = dict.fromkeys(passage for query in queries for passage in query.evidence)
    for passage in random.Random(seed).sample([*passages], len(passages)):
        more = {query.id for query in queries if passage in query.evidence}
        if len(chosen) < size and len(more) <= size:  # many name a hub
            chosen |= more
    return chosen or {query.id for query in [*queries][:size]}


def _parted(qrels: Qrels, chosen: Collection[str]) -> tuple[Qrels, Qrels]:
    first = {query: grades for query, grades in qrels.items() if query in chosen}
    return first, {query: grades for query, grades in qrels.items() if query not in chosen}


def spread(corpus: Corpus, most: int) -> list[Passage]:
    """At most so many passages, evenly spread over the corpus."""
    return corpus.passages(range(0, len(corpus), -(-len(corpus) // most)))
