"""The candidates of hops: the right passages, and wrong ones out of a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import tensor

from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.errors import DataError, MismatchError, Option
from grls.index.rows import Ints
from grls.io.progress import counted
from grls.runs.portions import differ
from grls.runs.run import Run
from grls.train.generator.decisions import Path
from grls.train.generator.examples import HopExample, Hops, RetrieveExamples
from grls.train.generator.loss import Ranked
from grls.train.generator.targets import Teaching
from grls.train.options import CandidateOptions

log = logging.getLogger(__name__)

_Key = tuple[str, tuple[int, ...]]
"""A hop: the text of its query, and its evidence."""


class RunCandidates:
    """The candidates of hops: right passages, and the best wrong ones of a run.

    They are the same in all epochs, so the model before the first step scores them once. Where the order of
    the gold passages is drawn anew each epoch, only the first hop has candidates.

    Args:
        examples: The training queries.
        others: Whether each hop also has a passage of another query, which ``kto`` needs.
    """

    def __init__(
        self,
        options: CandidateOptions,
        examples: RetrieveExamples,
        corpus: Corpus,
        teaching: Teaching,
        others: bool,
    ):
        run = Run.load(options.run)
        if run.info is not None and differ(run.info.corpus, corpus.fingerprint):
            raise MismatchError(
                f"{run.path} is a run over the corpus of {run.info.data}, and {corpus.source} is another: "
                "retrieve from it."
            )
        hits = {query.id: _hits_of_hops(run, query.id) for query in examples.queries}
        names = list({name: 0 for hops in hits.values() for hop in hops for name in hop})
        numbers = dict(zip(names, corpus.numbers(names), strict=True))
        if examples.done:
            numbers[DONE_ID] = len(corpus)
        for name, number in numbers.items():
            if number is None and name != DONE_ID:
                raise DataError(f"passage {name!r} is not in {corpus.source}: retrieve from it.", run.path)
        self.teaching = teaching
        self.listed: dict[_Key, dict[int, int]] = {}
        """Hop -> its candidates: passage -> its number among all candidates of the training."""
        self.others: dict[_Key, dict[int, int]] = {}
        """Hop -> a passage of another query, in the same way."""
        self.right: dict[_Key, tuple[int, ...]] = {}
        """Hop -> the candidates that are right in any epoch."""
        self.count, answered, without = 0, 0, 0
        known_of: dict[_Key, set[int]] = {}
        for query, hops in zip(examples.queries, examples.fixed_hops(), strict=True):
            found = hits[query.id]
            answered += bool(found)
            for place, (evidence, right, known) in enumerate(hops):
                texts = {teaching.text(passage) for passage in (*known, *right)}
                best = [numbers[name] for name in (found[place] if place < len(found) else ())]
                wrong = [n for n in best if n is not None and teaching.text(n) not in texts][: options.wrong]
                if wrong:
                    key = query.text, evidence
                    self.right[key] = (*self.right.get(key, ()), *right)
                    self._add(self.listed.setdefault(key, {}), [*right, *wrong])
                    known_of.setdefault(key, set()).update(known)
                without += not (wrong or place)
        queries = counted(len(examples.queries), "training query", "training queries")
        if not answered:
            raise DataError(
                f"it answers none of the {queries}: retrieve for them (`grls retrieve "
                f"{Option('split', 'train')}`).",
                run.path,
            )
        if not self.listed:
            raise DataError(
                f"it has no wrong passage for any of the {queries}: retrieve more (`grls retrieve "
                f"{Option('k', 20)}`).",
                run.path,
            )
        if without:
            log.warning("%s has no wrong passage for the first hop of %d of %s.", run.path, without, queries)
        if others:
            last = {key[0]: key for key in self.listed}  # query -> its last hop
            before = dict(zip(last, [[*last.values()][-1], *last.values()], strict=False))
            for n, key in enumerate(self.listed):  # of the query before; its right and wrong ones take turns
                there = list(self.listed[before[key[0]]])
                strange = [p for p in there[n % len(there) :] + there if p not in known_of[key]]
                self.others[key] = {}
                self._add(self.others[key], strange[:1])

    def _add(self, numbers: dict[int, int], passages: Sequence[int]) -> None:
        for passage in passages:
            if passage not in numbers:
                numbers[passage] = self.count
                self.count += 1

    def with_all_right(self, hops: Hops) -> Hops:
        """The hops that have candidates, each with all that are right in any epoch."""
        right = [self.right.get((hop.query, hop.evidence)) for hop in hops]
        return tuple(hop._replace(gold=gold) for hop, gold in zip(hops, right, strict=True) if gold)

    def __call__(self, hops: Sequence[HopExample]) -> CandidatePaths:
        """The candidates of a batch of hops, with their paths; those of other queries are last."""
        rows: list[tuple[int, int, int, bool]] = []  # hop, passage, number, whether it is right
        strange: list[tuple[int, int, int, bool]] = []
        for n, hop in enumerate(hops):
            key = hop.query, hop.evidence
            listed = [(n, p, number, p in hop.gold) for p, number in self.listed.get(key, {}).items()]
            listed = [
                row for row in listed if row[3] or row[1] not in hop.known or row[1] == self.teaching.done
            ]
            if {row[3] for row in listed} == {True, False}:
                rows += listed
                strange += [(n, p, number, False) for p, number in self.others.get(key, {}).items()]
        sequences = [self.teaching.sequences(hops[row[0]], row[1]) for row in rows + strange]
        paths = [
            Path(row[0], sequence, 0.0)
            for row, several in zip(rows + strange, sequences, strict=True)
            for sequence in several
        ]
        return CandidatePaths(
            paths,
            np.unique([row[0] for row in rows], return_inverse=True)[1],
            [row[3] for row in rows],
            [row[2] for row in rows + strange],
            [len(several) for several in sequences],
        )


class CandidatePaths(NamedTuple):
    """Paths of candidates; see :class:`Ranked`. ``counts [C + S]``: how many each has."""

    paths: list[Path]
    hops: Ints
    right: list[bool]
    numbers: list[int]
    counts: list[int]

    def tensors(self, tokens: Ints, takers: Ints) -> Ranked:
        """``takers [T]``: the path, among these, of each token."""
        owners = np.repeat(np.arange(len(self.counts)), self.counts)[takers]
        shares = 1 / np.array(self.counts, dtype=np.float32)[owners]
        hops = torch.as_tensor(self.hops, dtype=torch.long)
        right = tensor(self.right, dtype=torch.bool)
        numbers = tensor(self.numbers, dtype=torch.long)
        return Ranked(hops, right, numbers, *map(torch.from_numpy, (tokens, owners, shares)))


def _hits_of_hops(run: Run, query: str) -> list[list[str]]:
    """The ids of a query's hits, hop by hop; all hits of a ranking are those of the first hop."""
    in_order = run.in_hop_order and not run.is_ranking
    hits = run.chains[query].hits if in_order and query in run.chains else run.rankings.get(query, ())
    ids = [hit.id for hit in hits]
    if in_order and query in run.chains and run.chains[query].done:
        ids.append(DONE_ID)
    return [[name] for name in ids] if in_order else [ids] if ids else []
