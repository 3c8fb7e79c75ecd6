"""In-context RALM on any corpus and texts: comparisons in the form of arXiv 2302.00083.

    python -m benchmarks.ralm_study --data data/vimdoc --text data/vimdoc/texts/test --output runs/vimdoc/ralm

There is one table a question: no retrieval, retrievers and rerankers (table 1 of the paper, with the oracle
of its figure on the remaining gain), the stride, the length of the query. Each configuration is one call of
``grls ralm`` whose files stay, so an interrupted study goes on where it stopped. OUTPUT.svg shows the last
two tables.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from jsonargparse import auto_cli
from matplotlib.figure import Figure

from benchmarks.common import machine, print_table
from grls.answer.ralm.options import RerankOptions, WindowOptions
from grls.commands.ralm import ralm
from grls.io.files import write_json


class _Run(NamedTuple):
    """A configuration: name in tables, suffix of its files, options."""

    name: str
    file: str
    options: dict[str, Any]


def main(
    data: str,
    text: str,
    output: str,
    model: str = "SmolLM2-135M-Instruct",
    limit: int | None = None,
    dense: str | None = None,
    reranker: str | None = None,
    judge: str | None = None,
    strides: Sequence[int] = (1, 4, 16, 64),
    query_tokens: Sequence[int] = (16, 32, 64),
    candidates: int = 16,
    exclude: str | None = None,
) -> None:
    """Run all configurations, print and write the tables.

    Args:
        data: Data set folder with the corpus to retrieve from.
        text: A text, or a folder of texts.
        output: Path of the results without ending.
        model: A causal language model.
        limit: Number of first tokens of each text; null: all.
        dense: A dense retriever over the same corpus, to compare with BM25.
        reranker: Folder of a reranker trained for the model with BM25.
        judge: A smaller language model with the same tokenizer, as a further reranker (equation 6).
        strides: Strides to compare; the other tables have stride 4. Empty: no such table.
        query_tokens: Query lengths to compare; the other tables have 32. Empty: no such table.
        candidates: Documents to rerank; the time grows with their number. 0 leaves reranking out.
        exclude: File of titles or passage ids to exclude from retrieval.
    """
    common = {"model": model, "text": text, "limit": limit, "exclude": None}
    bm25 = {"data": data, "retriever": "bm25", "exclude": exclude, "stride": 4, "query_tokens": 32}
    retrieval = [_Run("no retrieval", "none", {}), _Run("BM25", "s4-l32", bm25)]
    by_dense = {"retriever": dense, "exclude": exclude}
    if dense:
        retrieval.append(_Run("dense", "dense", by_dense))
    if candidates:
        retrieval += _reranked("BM25", "", {**bm25, "candidates": candidates}, judge, reranker)
        if dense:  # the reranker was trained on BM25's candidates
            retrieval += _reranked("dense", "dense-", {**by_dense, "candidates": candidates}, judge, None)
    by_stride = [_Run(f"{s}", f"s{s}-l32", {**bm25, "stride": s}) for s in strides]
    by_length = [_Run(f"{n}", f"s4-l{n}", {**bm25, "query_tokens": n}) for n in query_tokens]
    parts = (("Retrieval and reranking", "run", retrieval), ("Stride", "stride", by_stride),
             ("Query length", "tokens", by_length))  # fmt: skip
    for _, _, runs in parts:
        for run in runs:
            _make(f"{output}-{run.file}", {**common, **run.options})
    results = {
        run.file: json.loads(Path(f"{output}-{run.file}.json").read_text(encoding="utf-8"))
        for _, _, runs in parts
        for run in runs
    }
    print(machine())
    base = results["none"]["token"]
    for title, label, runs in parts:
        if not runs:
            continue
        print_table(
            title,
            [label, "perplexity a token", "a word", "against none", "without a document", "seconds"],
            [[run.name, *_cells(results[run.file], base)] for run in runs],
        )
    if by_stride and by_length:
        _draw(Path(f"{output}.svg"), base, results, by_stride, by_length)


def _reranked(
    retriever: str, file: str, options: dict[str, Any], judge: str | None, reranker: str | None
) -> list[_Run]:
    """Runs that rerank a retriever's candidates: by the model, a smaller one, a reranker, the oracle."""
    zero_shot = {**options, "rerank": "zero-shot"}
    runs = [_Run(f"{retriever}, zero-shot reranking", f"{file}zero-shot", zero_shot)]
    if judge:
        name = f"{retriever}, zero-shot reranking by {Path(judge).name}"
        runs.append(_Run(name, f"{file}judge", {**zero_shot, "judge": judge}))
    if reranker:
        trained = {**options, "rerank": "trained", "reranker": reranker}
        runs.append(_Run(f"{retriever}, trained reranking", f"{file}trained", trained))
    return [*runs, _Run(f"{retriever}, oracle", f"{file}oracle", {**options, "rerank": "oracle"})]


def _make(output: str, options: dict[str, Any]) -> None:
    """Make a run, unless it exists with these options."""
    result, recorded = Path(f"{output}.json"), Path(f"{output}.options.json")
    if result.exists() and recorded.exists() and json.loads(recorded.read_text(encoding="utf-8")) == options:
        return
    ralm(output=output, **_nested(options))
    write_json(recorded, options)


def _nested(options: dict[str, Any]) -> dict[str, Any]:
    """Options in the form of the command."""
    rest = dict(options)
    reader = {name: rest.pop(name) for name in ("stride", "query_tokens") if name in rest}
    rerank = {name: rest.pop(name) for name in ("candidates", "judge", "reranker") if name in rest}
    by = rest.pop("rerank", "none")
    chosen = RerankOptions(by, **rerank) if by != "none" else RerankOptions()
    return {**rest, "reader": WindowOptions(**reader), "rerank": chosen}


def _cells(result: dict[str, Any], base: float) -> list[str]:
    return [
        f"{result['token']:.2f}", f"{result['word']:.2f}", f"{100 * (result['token'] / base - 1):+.1f} %",
        f"{result['without']:,} of {result['strides']:,}", f"{result['seconds']:.0f}",
    ]  # fmt: skip


def _draw(
    file: Path, base: float, results: dict[str, Any], by_stride: Sequence[_Run], by_length: Sequence[_Run]
) -> None:
    """Perplexity over the stride and over the length of the query, no retrieval as a line."""
    with mpl.rc_context({"svg.hashsalt": "grls", "font.size": 9}):
        figure = Figure(figsize=(7, 2.6), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for axis, runs, label in zip(
            axes, (by_stride, by_length), ("stride s", "query length l"), strict=True
        ):
            axis.plot([r.name for r in runs], [results[r.file]["token"] for r in runs], "o-", label="BM25")
            axis.axhline(base, color="gray", linestyle="--", label="no retrieval")
            axis.set_xlabel(f"{label} (tokens)")
        axes[0].set_ylabel("perplexity a token")
        axes[0].legend(frameon=False)
        figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
