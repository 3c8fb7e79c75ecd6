"""``grls ralm``: a frozen language model that reads, or writes, with retrieved documents."""

from __future__ import annotations

from grls.answer.ralm.options import (
    USUAL_EXAMPLES,
    USUAL_RERANK,
    USUAL_WINDOW,
    ExampleOptions,
    RerankOptions,
    WindowOptions,
)
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions


def ralm(
    *,
    model: str,
    text: str,
    output: str,
    data: str | None = None,
    retriever: str | None = None,
    hops: HopOptions = USUAL_HOPS,
    reader: WindowOptions = USUAL_WINDOW,
    rerank: RerankOptions = USUAL_RERANK,
    exclude: str | None = None,
    limit: int | None = None,
    device: str = "auto",
) -> None:
    """Measure how well a model predicts texts with retrieved documents (In-Context RALM, arXiv 2302.00083).

    Without a retriever nothing is retrieved. Writes OUTPUT.strides.jsonl (a line a stride) and OUTPUT.json. A
    killed run resumes when it is called again with the same options. `grls ralm examples`
    collects training examples for a reranker, `grls ralm generate` continues texts.

    Args:
        model: Folder or hub name of a causal language model; a .gguf file is read, too.
        text: A text file, or a folder whose .txt files are the texts.
        output: Path of the results without ending.
        data: Corpus, or data set folder with one: what the retriever bm25 retrieves from.
        retriever: Retriever folder of any kind, or bm25. Its folder stores the options of search.
        hops: How it retrieves hop by hop; the passages of a query's chains are its ranking.
        reader: Options of the model's input.
        rerank: Options of reranking the retrieved documents.
        exclude: A file of titles or passage ids, one a line, that must not be found: of the texts themselves.
            A line that is neither is reported.
        limit: Number of first tokens of each text to read; null: all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    from grls.answer.ralm.task import measure, task_of

    task = task_of(model, text, output, data, retriever, hops, reader, rerank, exclude, limit, device)
    measure(*task, output)


def ralm_examples(
    *,
    model: str,
    text: str,
    output: str,
    data: str | None = None,
    retriever: str,
    hops: HopOptions = USUAL_HOPS,
    reader: WindowOptions = USUAL_WINDOW,
    examples: ExampleOptions = USUAL_EXAMPLES,
    exclude: str | None = None,
    limit: int | None = None,
    device: str = "auto",
) -> None:
    """Collect what a reranker of documents learns from.

    Writes OUTPUT.examples.jsonl, for `grls train reranker`: for each stride its candidates, and what each is
    worth to the model. A killed run resumes when it is called again with the same options.

    Args:
        model: Folder or hub name of a causal language model; a .gguf file is read, too.
        text: A text file, or a folder whose .txt files are the texts.
        output: Path of the results without ending.
        data: Corpus, or data set folder with one: what the retriever bm25 retrieves from.
        retriever: Retriever folder of any kind, or bm25. Its folder stores the options of search.
        hops: How it retrieves hop by hop; the passages of a query's chains are its ranking.
        reader: Options of the model's input.
        examples: Which examples.
        exclude: A file of titles or passage ids, one a line, that must not be found: of the texts themselves.
            A line that is neither is reported.
        limit: Number of first tokens of each text to read; null: all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    from grls.answer.ralm.task import collect_examples, task_of

    oracle = RerankOptions("oracle", examples.candidates)
    task = task_of(model, text, output, data, retriever, hops, reader, oracle, exclude, limit, device)
    recorded = {"every": examples.every, "prefix_tokens": examples.prefix_tokens}
    collect_examples(
        task.reader, task.texts, {**task.settings, "rerank": "none", **recorded}, output, **recorded
    )


def ralm_generate(
    *,
    model: str,
    text: str,
    output: str,
    data: str | None = None,
    retriever: str | None = None,
    hops: HopOptions = USUAL_HOPS,
    reader: WindowOptions = USUAL_WINDOW,
    rerank: RerankOptions = USUAL_RERANK,
    exclude: str | None = None,
    limit: int | None = None,
    max_new_tokens: int = 64,
    device: str = "auto",
) -> None:
    """Write on from texts with retrieved documents.

    Writes OUTPUT.texts.jsonl, a line a text. A killed run resumes when it is called again
    with the same options.

    Args:
        model: Folder or hub name of a causal language model; a .gguf file is read, too.
        text: A text file, or a folder whose .txt files are the texts.
        output: Path of the results without ending.
        data: Corpus, or data set folder with one: what the retriever bm25 retrieves from.
        retriever: Retriever folder of any kind, or bm25. Its folder stores the options of search.
        hops: How it retrieves hop by hop; the passages of a query's chains are its ranking.
        reader: Options of the model's input.
        rerank: Options of reranking the retrieved documents.
        exclude: A file of titles or passage ids, one a line, that must not be found: of the texts themselves.
            A line that is neither is reported.
        limit: Number of first tokens of each text to read; null: all.
        max_new_tokens: Tokens to write.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    from grls.answer.ralm.task import task_of, write_on

    task = task_of(model, text, output, data, retriever, hops, reader, rerank, exclude, limit, device)
    settings = {**task.settings, "max_new_tokens": max_new_tokens}
    write_on(task.reader, task.texts, settings, output, max_new_tokens)
