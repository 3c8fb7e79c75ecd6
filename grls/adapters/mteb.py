"""Retrievers in MTEB's search protocol, and data sets as its tasks: MTEB's runner scores any of both."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

from grls.adapters.documents import is_blank, parted
from grls.api.searcher import Searcher
from grls.data.corpus import Corpus
from grls.data.dataset import passage_queries, read_split, relevant
from grls.data.filters import one_each
from grls.data.types import Passage, Query
from grls.data.words import Analyzer
from grls.errors import ConfigError, MismatchError
from grls.evaluation.metrics import complete_recall, means
from grls.io.arguments import Count, checked, short_repr
from grls.io.ending import needing
from grls.io.progress import counted
from grls.retrieve.base import Retriever
from grls.retrieve.run import retrieve_results
from grls.runs.portions import PORTION

with needing("mteb", "the search protocol of MTEB"):
    from datasets import Dataset
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.languages import check_language_code
    from mteb.models import ModelMeta

Rows = Iterable[Mapping[str, Any]]
"""A data set of MTEB."""


class MTEBSearch:
    """A retriever as ``mteb.evaluate`` takes it.

    A query's passages are those that ``grls retrieve`` writes
    (:func:`~grls.retrieve.run.retrieve_results`).

    Args:
        retriever: A searcher, for tasks over its corpus, or a function that makes a retriever of a corpus.
        name: Name in MTEB's results; None: that of the searcher.
        revision: Version in MTEB's results. MTEB skips tasks that have results of this name and version;
            None: the fingerprint of the searcher; for a function a new one, so nothing is skipped.
        k: Largest number of passages of a query; None: as many as MTEB asks for, mostly 1,000. The beam of a
            generator is as wide.

    Raises:
        ConfigError: A function comes without a name, or ``k`` is below 1.
    """

    @checked
    def __init__(
        self,
        retriever: Searcher | Callable[[Corpus], Searcher | Retriever],
        name: str | None = None,
        revision: str | None = None,
        k: Count | None = None,
    ):
        self._source = retriever
        self._retriever: Searcher | Retriever | None = None
        self._k = k
        if isinstance(retriever, Searcher):
            name = name or retriever.describe().name
            settings = f"{retriever.retriever.fingerprint()} {k}"
            revision = revision or sha256(settings.encode()).hexdigest()[:16]
        if not name:
            raise ConfigError('a function that makes retrievers needs a name for MTEB\'s results: name="…".')
        if "/" not in name:  # MTEB writes organization/model
            name = "grls/" + re.sub(r"[^\w.+-]+", "-", name)
        model = {"name": name, "revision": revision or uuid.uuid4().hex[:16]}
        self.mteb_model_meta = ModelMeta.create_empty(model)

    def index(self, corpus: Rows, *, task_metadata: Any = None, **task: Any) -> None:
        """Make the retriever of a task's corpus, or check that the searcher searches this corpus.

        Raises:
            ConfigError: The corpus has no texts, or the function returns no retriever.
            MismatchError: The searcher has another corpus.
        """
        self._retriever = None  # nothing of the task before is searched if this fails
        source = f"the corpus of {getattr(task_metadata, 'name', 'the task')}"
        passages = Corpus.from_passages(map(_passage, corpus), source)
        if isinstance(self._source, Searcher):
            _check_same(self._source.corpus, passages)
            self._retriever = self._source
        else:
            searcher = self._source(passages)
            if not isinstance(searcher, Searcher) and not callable(getattr(searcher, "retrieve", None)):
                raise ConfigError(
                    "retriever: the function that makes a retriever of a corpus must return a searcher or a "
                    f"retriever, got {short_repr(searcher)}."
                )
            self._retriever = searcher  # held, for a temporary folder goes with its searcher

    def search(
        self,
        queries: Rows,
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **task: Any,
    ) -> dict[str, dict[str, float]]:
        """Scores of the best passages of each query, by query id and passage id.

        Args:
            queries: The queries of the task.
            top_k: Largest number of passages of a query.
            top_ranked: The allowed passages of each query, in tasks of reranking.
            task: The other arguments of MTEB, which a retriever does not need.

        Raises:
            ConfigError: There was no :meth:`index`, or a query is a conversation.
        """
        if self._retriever is None:
            raise ConfigError("there is nothing to search yet: call index(corpus, ...) first.")
        retriever = self._retriever.retriever if isinstance(self._retriever, Searcher) else self._retriever
        k = top_k if self._k is None else min(top_k, self._k)
        scores: dict[str, dict[str, float]] = {str(row["id"]): {} for row in queries}
        texts = []
        for row in queries:
            text = row.get("text")
            if "text" in row and is_blank(text):
                continue
            if not isinstance(text, str):
                raise ConfigError(
                    f"MTEB: query {row['id']!r} has no text but {text!r}; retrievers take texts."
                )
            if row.get("instruction"):  # it follows, as for encoders of MTEB
                text = f"{text} {row['instruction']}"
            texts.append(Query(str(row["id"]), text))
        for start in range(0, len(texts), PORTION):
            part = texts[start : start + PORTION]
            allow = None if top_ranked is None else [top_ranked.get(query.id, ()) for query in part]
            for found in retrieve_results(retriever, part, k, one_each(allow, len(part))):
                scores[found.query_id] |= {hit.id: hit.score for hit in parted(found.hits)}
        return scores


class MTEBTask(AbsTaskRetrieval):
    """A split of a data set on disk as a retrieval task of MTEB.

    Recall, nDCG, MAP and precision are MTEB's of each query, averaged without its rounding to five digits;
    ``complete_recall_at_k`` is :func:`grls.evaluation.metrics.complete_recall` beside them.

    Args:
        data: The folder, in BEIR's layout (:mod:`grls.data.dataset`).
        split: The split, a file of ``qrels/``.
        name: Name in MTEB's results; None: that of the folder.
        language: The language of the texts, as MTEB writes it (ISO 639-3 and script: ``deu-Latn``); None:
            English, or unknown and taken for English.

    Raises:
        ConfigError: MTEB knows no such language; or none is given, and the texts are not English.
        DataError: The data set is incomplete or malformed.
    """

    @checked
    def __init__(
        self, data: str | Path, split: str = "test", name: str | None = None, language: str | None = None
    ):
        self._corpus = Corpus.read(data)
        if language is None and (code := Analyzer.guessed(self._corpus).language) != "en":
            raise ConfigError(
                f"{data} is not English (by its words: {code}): give language as MTEB writes it, ISO 639-3 "
                "and script, as in deu-Latn."
            )
        language = language or "eng-Latn"
        try:
            check_language_code(language if "-" in language else "")
        except ValueError:
            raise ConfigError(
                f"language: expected ISO 639-3 and script, as in eng-Latn or deu-Latn, got {language!r}."
            ) from None
        self._queries, self._qrels = read_split(data, split, self._corpus)
        self.ignore_identical_ids = bool(passage_queries(self._queries, self._qrels, self._corpus))
        self._facts = {
            "name": name or Path(data).resolve().name,
            "description": f"{split} of {data}.",
            "eval_splits": [split],
            "eval_langs": [language],
        }
        super().__init__()

    @cached_property  # which MTEB deletes, or sets to that of a part of the task
    def metadata(self) -> TaskMetadata:
        """What MTEB's results say of the task; the revision is that of corpus, queries and judgements."""
        judged = repr((self._corpus.fingerprint, self._queries, self._qrels))
        return TaskMetadata(
            dataset={"path": "local", "revision": sha256(judged.encode()).hexdigest()[:16]},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            main_score="ndcg_at_10",
            bibtex_citation="",
            **self._facts,
        )

    def load_data(self, **options: Any) -> None:
        """Make the tables that MTEB reads."""
        passages = [{"id": p.id, "title": p.title, "text": p.text} for p in self._corpus]
        tables = {
            "corpus": Dataset.from_list(passages),
            "queries": Dataset.from_list([{"id": query.id, "text": query.text} for query in self._queries]),
            "relevant_docs": self._qrels,
            "top_ranked": None,
        }
        self.dataset = {"default": dict.fromkeys(self.metadata.eval_splits, tables)}
        self.data_loaded = True

    def task_specific_scores(
        self, scores: Any, qrels: Any, results: Any, hf_split: str, hf_subset: str
    ) -> dict[str, float]:
        """The scores that are unrounded or MTEB has not; see its method of this name."""
        names = {"recall": "recall", "ndcg": "ndcg_cut", "map": "map_cut", "precision": "P"}
        exact = {
            f"{name}_at_{k}": fmean(row[f"{measure}_{k}"] for row in scores.values())
            for name, measure in names.items()
            for k in self.k_values
        }
        ids = [sorted(found, key=found.get, reverse=True) for found in results.values()]
        gold = [relevant(qrels[query]) for query in results]
        complete = means(complete_recall, ids, gold, ks=self.k_values)
        return exact | {measure.replace("@", "_at_"): value for measure, value in complete.items()}


def _passage(row: Mapping[str, Any]) -> Passage:
    if "text" not in row:
        raise ConfigError(f"MTEB: a passage has no text, only {', '.join(row)}; retrievers search texts.")
    return Passage(str(row["id"]), row["text"] or "", row.get("title") or "")


def _check_same(searched: Corpus, passages: Corpus) -> None:
    """Refuse a corpus that is not the searcher's, white space and the order of passages aside."""
    remedy = "index the passages of the task, or give a function that makes a retriever of a corpus."
    if len(searched) != len(passages):
        raise MismatchError(
            f"the searcher has {counted(len(searched), 'passage')}, {passages.source} has "
            f"{len(passages):,}: {remedy}"
        )
    for batch in passages.batches():
        numbers = searched.numbers([passage.id for passage in batch])
        for passage, number in zip(batch, numbers, strict=True):
            held = None if number is None else searched[number]
            if held is None or _words(held) != _words(passage):
                fault = "is not in the corpus of the searcher" if held is None else "has another text there"
                raise MismatchError(f"the passage {passage.id!r} of {passages.source} {fault}: {remedy}")


def _words(passage: Passage) -> list[str]:
    return f"{passage.title} {passage.text}".split()
