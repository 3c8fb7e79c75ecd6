"""``grls ralm``: a frozen language model that reads with retrieved documents."""

from __future__ import annotations

from typing import Any

from grls.answer.ralm.options import (
    USUAL_EXAMPLES,
    USUAL_RERANK,
    ExampleOptions,
    RerankOptions,
    TaskOptions,
)


def ralm(*, rerank: RerankOptions = USUAL_RERANK, **options: Any) -> None:
    """Measure how well a model predicts texts with retrieved documents (In-Context RALM, arXiv 2302.00083).

    Without a retriever nothing is retrieved. Writes OUTPUT.strides.jsonl (a line a stride) and OUTPUT.json. A
    killed run resumes when it is called again with the same options. `grls ralm examples`
    collects training examples for a reranker.

    Args:
        rerank: Options of reranking the retrieved documents.
        options: See :class:`~grls.answer.ralm.options.TaskOptions`.
    """
    asked = TaskOptions(**options)
    from grls.answer.ralm.task import measure, task_of

    measure(task_of(asked, rerank))


def ralm_examples(*, retriever: str, examples: ExampleOptions = USUAL_EXAMPLES, **options: Any) -> None:
    """Collect what a reranker of documents learns from.

    Writes OUTPUT.examples.jsonl, for `grls train reranker`: for each stride its candidates, and what each is
    worth to the model. A killed run resumes when it is called again with the same options.

    Args:
        retriever: Retriever folder of any kind, or bm25. Its folder stores the options of search.
        examples: Which examples.
        options: See :class:`~grls.answer.ralm.options.TaskOptions`.
    """
    asked = TaskOptions(retriever=retriever, **options)
    from grls.answer.ralm.task import collect_examples, task_of

    collect_examples(task_of(asked, RerankOptions("oracle", examples.candidates)), examples)
