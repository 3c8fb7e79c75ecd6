"""The retriever that a language model reads from: a folder of any kind, or BM25 over a corpus.

How it searches (beams, priors, rescoring, members) says its folder. Its queries are pieces of a text, or a
model's, so one that is too long is cut, not refused.
"""

from __future__ import annotations

from typing import Any

from grls.answer.finished import FinishedRun
from grls.answer.questions import Questions
from grls.data.corpus import Corpus
from grls.errors import ConfigError, MismatchError
from grls.io.files import sha256
from grls.retrieve.base import Retriever, WritesChains
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.registry import BM25, Opening, load, load_named


def open_for_reading(
    name: str | None,
    hops: HopOptions | None = None,
    device: str = "auto",
    corpus: Corpus | None = None,
    same: bool = True,
) -> Retriever | None:
    """Open what retrieves.

    Args:
        name: A retriever folder, or ``bm25``; None: nothing retrieves.
        hops: How it goes hop by hop, whatever its folder says; None: as its folder says.
        device: Of the models.
        corpus: The passages of the data set: what BM25 retrieves from.
        same: Whether a folder must be over that corpus.

    Raises:
        ConfigError: Hops are asked for and nothing retrieves, BM25 has no corpus, or the retriever cannot go
            so.
        DataError: The folder is no retriever.
        MismatchError: The retriever is over another corpus than it must be.
    """
    if name is None:
        if hops is not None and hops.steps != "single":
            raise ConfigError("--hops.steps says how to retrieve: give --retriever FOLDER or bm25, too.")
        return None
    how = Opening(device, truncate_queries=True)
    if name == BM25 and corpus is None:
        raise ConfigError("--retriever bm25 needs --data, the corpus to retrieve from.")
    opened = load(name, how) if corpus is None else load_named(name, corpus, how)
    if same and corpus is not None and corpus.fingerprint != opened.corpus.fingerprint:
        raise MismatchError(
            f"--retriever {name} is over another corpus than {corpus.source}: make it again from that one, "
            "or give the data set that it was made from."
        )
    return opened if hops is None else hop_by_hop(opened, hops)


def score_mode_of(retriever: Retriever) -> str:
    """What the scores of its rankings mean: those of chains are the places of their passages."""
    description = retriever.describe()
    return description.score_mode if description.steps == "single" else "pooled"


def is_probable(retriever: Retriever) -> bool:
    """Whether a score is the log-probability of a passage."""
    return isinstance(retriever, WritesChains) and retriever.writes_chains


def retrieval_settings(name: str | None, retriever: Retriever | None) -> dict[str, Any]:
    """What found passages depend on, as JSON values."""
    if retriever is None:
        return {"retriever": None}
    return {
        "retriever": name,
        "retriever_fingerprint": retriever.fingerprint(),
        "retriever_options": retriever.describe().options,
    }


def open_or_look_up(
    questions: Questions, retriever: str | None, run: str | None, hops: HopOptions, device: str
) -> Retriever | FinishedRun | None:
    """What finds passages for questions: a retriever, or a run that one has written; None: nothing does."""
    if run is not None:
        return FinishedRun(run, questions.corpus, questions.every, questions.split)
    return open_for_reading(retriever, hops, device, questions.corpus)


def found_settings(
    retriever: str | None, run: str | None, found: Retriever | FinishedRun | None
) -> dict[str, Any]:
    """What found passages depend on, as JSON values."""
    opened = None if isinstance(found, FinishedRun) else found
    return {**retrieval_settings(retriever, opened), "run": None if run is None else sha256(run)}


def origin_of(found: Retriever | FinishedRun | None) -> tuple[str, str, str, dict[str, Any]]:
    """System, label, score mode, and options of what found passages."""
    if found is None:
        return "generator", "", "none", {}
    if isinstance(found, FinishedRun):
        label = "a finished run" if found.info is None else found.info.name
        system = "generator" if found.info is None else found.info.system
        return system, label, found.score_mode, {"run": label}
    description = found.describe()
    return description.system, description.name, score_mode_of(found), description.options
