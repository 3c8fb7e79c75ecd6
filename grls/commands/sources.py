"""What retrieves for a reader or a program, as the command line names it: one retriever, or several fused.

A retriever folder (generative or dense), BM25 over the data set's corpus, or any of these together; each in a
single step or hop by hop. The commands that use this ask a :class:`~grls.retrieve.base.Retriever` and do not
know which it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from grls.commands.retrieve import refuse_other_corpus
from grls.data.corpus import Corpus
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError
from grls.retrieve.base import Retriever, Steps, WritesChains
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.fusion.fuse import Fusion, Method
from grls.retrieve.fusion.retriever import FusionRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.queries import check_counts
from grls.retrieve.registry import open_retriever

Folders = list[str] | str | None
"""Retriever folders as an option gives them: several, one, or none."""

HOPS = 2
"""Hops of a chain, where nothing else is asked for."""


class Source(NamedTuple):
    """What retrieves, and how it is called.

    Attributes:
        retriever: Any retriever of ours.
        corpus: What it retrieves from.
        system: Its kind.
        label: The kinds of all members, and how they retrieve.
        score_mode: What its scores mean.
        options: Of the members; for the record.
        probable: Whether a score is the log-probability of a passage.
        fingerprint: Of every member, what it finds by; two of another model or corpus differ.
    """

    retriever: Retriever
    corpus: Corpus
    system: str
    label: str
    score_mode: str
    options: dict[str, Any]
    probable: bool
    fingerprint: str


@dataclass(frozen=True)
class Named:
    """Retrievers as they are named, and how they are asked.

    Args:
        folders: Retriever folders.
        bm25: BM25, too.
        steps: ``single``, ``fixed`` or ``dynamic``; see ``grls retrieve``.
        hops: Hops of a chain (fixed), most hops (dynamic); None: ``HOPS``.
        done_bias: Added to the log-odds of DONE (dynamic).
        fusion: How several retrievers are fused.
        weights: One a retriever, BM25's last; None weighs all alike.
        analyzer: How BM25 splits texts into words.

    Raises:
        ConfigError: An option has nothing to work on, or cannot work.
    """

    folders: tuple[str, ...]
    bm25: bool = False
    steps: Steps = "single"
    hops: int | None = None
    done_bias: float = 0.0
    fusion: Method = "interleave"
    weights: tuple[float, ...] | None = None
    analyzer: Analyzer = USUAL

    def __post_init__(self) -> None:
        check_counts(**{"--chain_hops": HOPS if self.hops is None else self.hops})
        if self.steps == "single" and self.hops is not None:
            raise ConfigError("--chain_hops goes with --steps fixed or dynamic.")
        if self.steps != "dynamic" and self.done_bias:
            raise ConfigError("--done_bias goes with --steps dynamic.")
        if not self and self.steps != "single":
            raise ConfigError("--steps says how to retrieve: give --retriever FOLDER or --bm25 true, too.")
        if len(self.names) < 2 and (self.fusion != "interleave" or self.weights is not None):
            raise ConfigError(
                "--fusion and --weights fuse several retrievers: give --retriever several folders, or --bm25 "
                "true beside one."
            )
        if self.weights is not None and len(self.weights) != len(self.names):
            raise ConfigError(
                f"{len(self.weights)} weights for {len(self.names)} retrievers; give --weights one for each, "
                "BM25's last."
            )
        if len(set(self.names)) < len(self.names):
            raise ConfigError(f"a retriever is named twice: {', '.join(self.names)}.")
        Fusion(self.fusion, weights=self.weights)  # refuses what cannot work

    @classmethod
    def of(
        cls,
        retriever: Folders,
        bm25: bool,
        steps: Steps = "single",
        chain_hops: int | None = None,
        done_bias: float = 0.0,
        fusion: Method = "interleave",
        weights: list[float] | None = None,
        analyzer: Analyzer = USUAL,
    ) -> Named:
        """From the options of a command."""
        folders = (retriever,) if isinstance(retriever, str) else tuple(retriever or ())
        given = None if weights is None else tuple(weights)
        return cls(folders, bm25, steps, chain_hops, done_bias, fusion, given, analyzer)

    @property
    def names(self) -> tuple[str, ...]:
        """The folders, and ``bm25``."""
        return (*self.folders, "bm25") if self.bm25 else self.folders

    def __bool__(self) -> bool:
        return bool(self.names)

    def settings(self) -> dict[str, Any]:
        """What found passages depend on, as JSON values; what is as usual is left out."""
        found: dict[str, Any] = {"retriever": None}
        if self:
            found["retriever"] = self.names[0] if len(self.names) == 1 else list(self.names)
        if len(self.names) > 1:
            found |= {"fusion": self.fusion, "weights": None if self.weights is None else list(self.weights)}
        if self.bm25 and (words := self.analyzer.settings()):
            found["analyzer"] = words
        if self.steps != "single":
            found |= {"steps": self.steps, "chain_hops": HOPS if self.hops is None else self.hops}
        return found | ({"done_bias": self.done_bias} if self.steps == "dynamic" else {})


def open_source(
    named: Named, data: str | None, device: str, batch_size: int = 32, split: str | None = None
) -> Source | None:
    """Open what retrieves.

    Its queries are pieces of a text, or a model's: too long a one is cut, not refused.

    Args:
        named: What to open.
        data: Data set folder, or a corpus: what BM25 retrieves from.
        device: Of the models.
        batch_size: Queries retrieved for together.
        split: The queries' split of ``data``, where passages are scored against its own; None: any corpus.

    Returns:
        None where nothing is named.

    Raises:
        ConfigError: BM25 has no corpus, or cannot end a chain and is to.
        DataError: A folder is no retriever.
        MismatchError: Two retrievers are over different corpora, or one over another than ``data`` has.
    """
    if not named:
        return None
    if named.bm25 and data is None:
        raise ConfigError("--bm25 needs --data, the corpus to retrieve from.")
    if named.bm25 and named.steps == "dynamic":
        raise ConfigError("BM25 never writes DONE: choose --steps single or fixed.")
    options = SearchOptions(batch_size=batch_size, truncate_queries=True)
    opened: list[Retriever] = []
    for folder in named.folders:
        opened.append(open_retriever(folder, device, options=options))
        if data is not None:
            refuse_other_corpus(opened[-1], data, split)
    if named.bm25:
        opened.append(BM25Retriever(Corpus.read(str(data)), analyzer=named.analyzer))
    members = [_stepped(one, named) for one in opened]
    return _source(members[0] if len(members) == 1 else _fused(members, named))


def _source(retriever: Retriever) -> Source:
    told = retriever.describe()
    probable = isinstance(retriever, WritesChains) and retriever.writes_chains
    mode = told.score_mode if told.steps == "single" else "pooled"
    corpus, made_of = retriever.corpus, retriever.fingerprint()
    return Source(retriever, corpus, told.system, told.name, mode, told.options, probable, made_of)


def _stepped(opened: Retriever, named: Named) -> Retriever:
    """A retriever in a single step, or hop by hop."""
    if named.steps == "single":
        return opened
    hops = HOPS if named.hops is None else named.hops
    return HopsRetriever(opened, HopOptions(named.steps, hops, done_bias=named.done_bias))


def _fused(members: list[Retriever], named: Named) -> Retriever:
    return FusionRetriever(members, Fusion(named.fusion, weights=named.weights))
