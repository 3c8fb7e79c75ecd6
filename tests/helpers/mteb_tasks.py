"""Tasks of MTEB that are made here, and need no download."""

from collections.abc import Mapping, Sequence
from typing import Any

import datasets
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

Rows = Sequence[Mapping[str, Any]]


def retrieval_task(
    passages: Rows,
    queries: Rows,
    qrels: Mapping[str, Mapping[str, int]],
    top_ranked: Mapping[str, Sequence[str]] | None = None,
    name: str = "Frogs",
) -> AbsTaskRetrieval:
    class Made(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name=name, description="Frogs and walls.", dataset={"path": "none", "revision": "1"},
            type="Retrieval", category="t2t", modalities=["text"], eval_splits=["test"],
            eval_langs=["eng-Latn"], main_score="ndcg_at_10", bibtex_citation="",
        )  # fmt: skip

        def load_data(self, **options: Any) -> None:
            split = {
                "corpus": datasets.Dataset.from_list(list(passages)),
                "queries": datasets.Dataset.from_list(list(queries)),
                "relevant_docs": {query: dict(grades) for query, grades in qrels.items()},
                "top_ranked": top_ranked,
            }
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    return Made()
