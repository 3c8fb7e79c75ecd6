"""A run as one value: the passages that were retrieved for the queries, and the manifest.

It is loaded from JSONL of ours or from a TREC run of any tool; the manifest beside the file comes with it.
Results that do not fit the memory are saved without a :class:`Run`, by :mod:`grls.runs.portions`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.data.types import RANKINGS, Chain, Hit, Query, Steps
from grls.errors import ConfigError, MismatchError
from grls.io.arguments import checked
from grls.io.files import without_ending
from grls.io.progress import counted
from grls.runs.portions import ENDINGS, RunInfo, differ, read_info, save_retrieved, write_info
from grls.runs.results import Retrieved, read_results
from grls.runs.trec import chain_ranking, read_run, refuse_unknown, without_done, write_run

_SHOWN = 3  # example ids of an error


def _candidates(options: Mapping[str, Any]) -> int | None:
    """How many candidates a retriever has for a query; of a fusion the most of a member; None: no limit."""
    members = options.get("members")
    if isinstance(members, list) and all(isinstance(member, dict) for member in members):
        limits = [limit for member in members if (limit := _candidates(member)) is not None]
        return max(limits, default=None) if len(limits) == len(members) else None
    candidates = options.get("passages")
    return candidates if isinstance(candidates, int) else None


@dataclass(frozen=True)
class Run:
    """Rankings or chains of queries, and the manifest.

    Attributes:
        rankings: Query id -> hits, best first, without DONE.
        chains: Query id -> chain, for the queries answered hop by hop.
        score_mode: What the scores mean; empty where unknown (a TREC run does not say).
        info: The manifest; None where there is none.
        path: The file it was read from; empty where it was made in memory.
    """

    rankings: dict[str, list[Hit]]
    chains: dict[str, Chain] = field(default_factory=dict)
    score_mode: str = ""
    info: RunInfo | None = None
    path: str = field(default="", compare=False)

    @classmethod
    def of(
        cls,
        rankings: Mapping[str, Sequence[Hit]] | None = None,
        chains: Mapping[str, Chain] | None = None,
        info: RunInfo | None = None,
        score_mode: str = "",
    ) -> Run:
        """A run of results in memory.

        Args:
            rankings: Query id -> hits, best first. A query that has only a chain is ranked by it.
            chains: Query id -> chain.
            info: The manifest.
            score_mode: What the scores mean, where there is no manifest to say it.
        """
        chains = dict(chains or {})
        ranked = {query: without_done(hits) for query, hits in (rankings or {}).items()}
        ranked |= {query: chain_ranking(chain) for query, chain in chains.items() if query not in ranked}
        return cls(ranked, chains, score_mode if info is None else info.score_mode, info)

    @classmethod
    @checked
    def load(cls, path: str | Path) -> Run:
        """Read JSONL (the name ends in ``.jsonl``) or else a TREC run, with its manifest.

        Raises:
            DataError: A file is missing or malformed, or the manifest belongs to other files.
        """
        path = Path(path)  # ./run.jsonl is run.jsonl, in all that names runs
        info = read_info(path)
        if path.suffix != ".jsonl":
            return cls(read_run(path), info=info, path=str(path))
        rankings: dict[str, list[Hit]] = {}
        chains: dict[str, Chain] = {}
        mode = ""
        for mode, result in read_results(path):  # noqa: B007 (all lines have one mode)
            rankings[result.query_id] = result.hits
            if result.chain is not None:
                chains[result.query_id] = result.chain
        return cls(rankings, chains, mode, info, str(path))

    @property
    def name(self) -> str:
        """What reports call it: the manifest's name, or else the file's."""
        return self.info.name if self.info is not None else Path(self.path).stem

    @property
    def called(self) -> str:
        """What errors call it: its file, or else its name."""
        return self.path or self.name

    @property
    def steps(self) -> Steps:
        """As the manifest says; without one, chains tell."""
        if self.info is not None:
            return self.info.steps
        return "dynamic" if self.chains else "single"

    @property
    def in_hop_order(self) -> bool:
        """Whether passages stand where hops found them; a ranking without hops does.

        The passages of sets stand by probability (``expected-f1``). A ranking leaves out what a chain
        repeats, so without its chains a run whose hops may repeat a passage does not tell.
        """
        mode = self.score_mode if self.info is None else self.info.score_mode
        repeats = self.info is not None and self.info.options.get("repeat") is True
        return not mode.endswith(", expected-f1") and (bool(self.chains) or not repeats)

    @property
    def is_ranking(self) -> bool:
        """Whether the hits are a ranking, which was cut off somewhere; else they are a chain, which ends."""
        if self.info is None:
            return not self.chains
        return self.info.steps in RANKINGS or self.info.options.get("pool") is True

    def depth(self, passages: int | None = None) -> int | None:
        """The deepest rank at which the run tells the retrieved passage.

        A ranking is cut off at the ``k`` of its manifest (null: nowhere). Without one (a run of another tool)
        its longest list tells the depth. Lists that are all shorter than ``k`` are whole: a corpus, a filter
        or the words of the queries held no more; not where a retriever has only so many candidates
        (``passages`` of its manifest). A fusion of runs that were cut off tells no deeper than they
        do.

        Args:
            passages: Size of the corpus, a list of which is whole; None: unknown.

        Returns:
            None where nothing was cut off: a chain, whole lists, or no hit at all.
        """
        if not self.is_ranking:
            return None
        options = {} if self.info is None else self.info.options
        longest = max(map(len, self.rankings.values()), default=0)
        k = options.get("k", longest)
        bounds = [bound for bound in (k, _candidates(options)) if isinstance(bound, int)]
        whole = not longest or all(longest < bound for bound in bounds)
        depths = [options.get("members_depth"), None if whole else longest]
        depth = min((depth for depth in depths if isinstance(depth, int)), default=None)
        return None if depth is None or (passages is not None and depth >= passages) else depth

    def without_own(self, own: Collection[str]) -> Run:
        """Without the passages that some queries (:func:`~grls.data.dataset.passage_queries`) are."""
        if not own:
            return self
        found = [result.without_own() for result in self.retrieved(own) if result.query_id in self.rankings]
        rankings = {result.query_id: result.hits for result in found}
        chains = {result.query_id: result.chain for result in found if result.chain is not None}
        return replace(self, rankings=self.rankings | rankings, chains=self.chains | chains)

    def retrieved(self, queries: Iterable[str]) -> Iterator[Retrieved]:
        """The result of each query; without a hit where the run does not answer it."""
        for query in queries:
            yield Retrieved(query, self.rankings.get(query, []), self.chains.get(query))

    def save(
        self, output: str | Path, queries: Sequence[Query] | None = None, corpus: Corpus | None = None
    ) -> str:
        """Write ``output.trec``, ``output.jsonl`` and ``output.info.json``, each atomically.

        Args:
            output: Path without ending (one of :data:`~grls.runs.portions.ENDINGS` is left out).
            queries: The queries; a line of JSONL for each. None, or no corpus: there is no JSONL.
            corpus: The passages, for the texts of JSONL.

        Returns:
            The files and their content, in a line.

        Raises:
            ConfigError: The run has no manifest to write.
            DataError: A result is of another query or of another passage, or cannot be written.
        """
        if self.info is None:
            raise ConfigError("a run is saved with its manifest, and this one has none: give it `info`.")
        output = without_ending(str(output), ENDINGS)
        if queries is None or corpus is None:
            write_run(f"{output}.trec", self.rankings)
            write_info(output, self.info, endings=[".trec"])
            count = counted(len(self.rankings), "query")
            return f"{output}.trec: {count}, score mode {self.info.score_mode}, no texts"
        ids = [query.id for query in queries]
        refuse_unknown(self.rankings, set(ids), "query", "the queries given")
        return save_retrieved(output, queries, corpus, list(self.retrieved(ids)), self.info)

    def compatible_with(self, other: Run) -> None:
        """Refuse a run that cannot be fused or compared with this one; an empty fingerprint is unknown.

        Raises:
            MismatchError: The manifests tell that the two are over different corpora, or answer different
                queries or splits.
        """
        if self.info is None or other.info is None:
            return
        if differ(self.info.corpus, other.info.corpus):
            raise MismatchError(
                f"{self.called} is a run over the corpus of {self.info.data}, {other.called} over another "
                f"one, of {other.info.data}; give runs over the same corpus."
            )
        both = f"{self.called} ({self.info.query_set}) and {other.called} ({other.info.query_set})"
        if differ(self.info.queries, other.info.queries):
            why = self.unlike(other) or "the ids are the same, the texts differ"
            raise MismatchError(f"{both} answer different queries: {why}; retrieve for the same ones.")
        known = self.info.queries and other.info.queries  # then two splits may be of the same queries
        if not known and differ(self.info.split or "", other.info.split or ""):
            raise MismatchError(f"{both} answer different splits; retrieve for the same one.")

    def unlike(self, other: Run) -> str:
        """The queries that one of two runs lacks, in words; empty where both answer the same."""
        first, second = self.rankings.keys(), other.rankings.keys()
        parts = [
            f"{len(alone)} are in {run} alone ({first_ids(alone)})"
            for alone, run in ((first - second, self.called), (second - first, other.called))
            if alone
        ]
        return ", ".join(parts)


def shared_limit(runs: Iterable[Run]) -> int | None:
    """How many first queries of a split the runs were asked, as their manifests say; None: all.

    The runs are for the same queries (:meth:`Run.compatible_with`), or for all queries of the data set.
    """
    infos = [run.info for run in runs if run.info is not None and run.info.split is not None]
    limits = [info.limit for info in infos if info.limit is not None]
    return max(limits, default=None) if len(limits) == len(infos) else None


def first_ids(ids: Collection[str]) -> str:
    """The first ids for an error text, sorted where they have no order."""
    ordered = list(ids) if isinstance(ids, Sequence) else sorted(ids)
    return ", ".join(map(repr, ordered[:_SHOWN])) + (", …" if len(ordered) > _SHOWN else "")
