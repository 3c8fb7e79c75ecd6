"""The retriever that a language model reads from: a folder of any kind, or BM25 over a corpus.

The queries are pieces of a text, or written by a model, so a query that is too long is cut, not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from grls.data.corpus import Corpus
from grls.data.types import RANKINGS, Hit, Query
from grls.errors import ConfigError, MismatchError, Option
from grls.retrieve.base import Description, Retriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.registry import Opening, load_named, load_retriever, names_bm25
from grls.runs.run import Run

if TYPE_CHECKING:
    from grls.answer.writer import Questions


class FindsPassages(Protocol):
    """What answers are written from: a retriever of any kind, a finished run, or a queue of a server."""

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit]]: ...


def open_for_reading(
    name: str | None,
    hops: HopOptions | None = None,
    device: str = "auto",
    corpus: Corpus | None = None,
    same: bool = True,
) -> Retriever | None:
    """Open a retriever.

    Args:
        name: A retriever folder, or ``bm25``; None for no retrieval.
        hops: How to retrieve hop by hop, whatever the folder says; None: as the folder says.
        device: Device of the models.
        corpus: The passages of the data set; BM25 retrieves from them.
        same: Whether the retriever's corpus must be this one.
    """
    if name is None:
        if hops is not None and hops.steps != "single":
            raise ConfigError(
                f"{Option('hops.steps')} needs a retriever: give {Option('retriever', 'FOLDER', 'bm25')}."
            )
        return None
    opening = Opening(device, truncate_queries=True)
    if corpus is None and names_bm25(name):
        raise ConfigError(
            f"{Option('retriever', 'bm25')} needs {Option('data')}, the corpus to retrieve from."
        )
    if corpus is None or not (same or names_bm25(name)):
        opened = load_retriever(name, opening)
    else:
        opened = load_named(name, corpus, opening)
    return opened if hops is None else hop_by_hop(opened, hops)


def description_of(source: Retriever | FinishedRun | None) -> Description:
    """The description of what passages are retrieved by; scores of chains are ranks: ``pooled``."""
    if source is None:
        return Description("generator", "none")
    description = source.describe()
    return description if description.steps in RANKINGS else replace(description, score_mode="pooled")


def retrieval_settings(name: str | None, retriever: Retriever | None) -> dict[str, Any]:
    if retriever is None:
        return {"retriever": None}
    return {
        "retriever": name,
        "retriever_fingerprint": retriever.fingerprint(),
        "retriever_options": retriever.describe().options,
    }


class FinishedRun:
    """Looks up the passages of a run: JSONL of ``grls retrieve``, or a TREC run."""

    def __init__(self, run: str | Path, questions: Questions):
        from grls.evaluation.evaluate import judged_runs

        (judged,) = judged_runs([Run.load(run)], questions.data, questions.split, questions.corpus)
        loaded, info = judged.run, judged.run.info
        if info is not None and info.limit is not None and info.limit < len(questions.queries):
            raise MismatchError(
                f"{run} ({info.query_set}) answers fewer queries than the {len(questions.queries):,} asked; "
                f"give {Option('limit', info.limit)}, or retrieve for all of them."
            )
        system, label = ("generator", "a finished run") if info is None else (info.system, info.name)
        self._description = Description(system, loaded.score_mode or "unknown", {"run": label}, label)
        self._rankings = loaded.rankings

    def describe(self) -> Description:
        return self._description

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        return [self._rankings.get(query.id, [])[:k] for query in queries]
