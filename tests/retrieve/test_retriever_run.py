"""A run of a retriever, made from Python as the command makes it."""

from pathlib import Path

from small_data import write_small

from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.filter_options import NO_FILTER
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.run import RetrieverRun
from grls.runs.manifest import fingerprint_queries
from grls.runs.run import Run


def test_it_saves_what_the_retriever_returns(tmp_path: Path) -> None:
    data = write_small(tmp_path / "data")
    corpus = Corpus.read(data)
    queries = read_split(data, "test", corpus)[0]
    retriever = BM25Retriever(corpus)
    none = [None] * len(queries)
    asked = RetrieverRun(retriever, queries, str(data), "test", 3, False, none, NO_FILTER, "float32")
    line = asked.save(f"{tmp_path}/r", "mine")
    assert line.startswith(f"{tmp_path}/r.trec, {tmp_path}/r.jsonl: 2 queries, score mode bm25, ")
    run = Run.load(tmp_path / "r.jsonl")
    hits = retriever.retrieve(queries, 3)
    assert run.rankings == {query.id: found for query, found in zip(queries, hits, strict=True)}
    assert run.info is not None
    assert (run.info.name, run.info.split, run.info.options["k"]) == ("mine", "test", 3)
    assert (run.info.corpus, run.info.queries) == (corpus.fingerprint, fingerprint_queries(queries))
