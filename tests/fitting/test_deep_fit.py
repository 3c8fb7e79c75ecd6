"""A fit that decides by recall at a cut-off beyond the 20 passages that are usual."""

from pathlib import Path

from fit_helpers import WORDS_ALONE, fit_options
from report_helpers import page_text

from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.fitting.run import fit_dataset
from grls.fitting.splits import read_data
from grls.retrieve.registry import Opening, load_retriever

PLACE = 30
"""The place of every gold passage: a longer text on the same word stands below a shorter one."""


def test_recall_at_a_deep_cut_off_is_that_of_the_kept_retriever(tmp_path: Path) -> None:
    """It was recall@20 under the name of R@30."""
    passages = [Passage(f"p{n}", f"An otter {'swims ' * n}.") for n in range(1, 41)]
    queries = [Query(f"q{n}", f"otter {n}x", (f"p{PLACE}",)) for n in range(12)]
    parts = {"train": queries[:4], "dev": queries[4:8], "test": queries[8:]}
    qrels = {split: {query.id: {f"p{PLACE}": 1} for query in part} for split, part in parts.items()}
    write_dataset(tmp_path / "data", passages, queries, qrels)
    options = fit_options(**WORDS_ALONE, k=PLACE)
    deep = fit_dataset(read_data(tmp_path / "data", options), tmp_path / "out", options, shown=False)
    assert deep.metrics["bm25"][f"dev R@{PLACE}"] == deep.metrics["bm25"][f"test R@{PLACE}"] == 1.0
    assert deep.metrics["bm25"]["test R@20"] == 0.0
    assert "R@30 100.0 on 4 dev queries" in deep.why
    (hits,) = load_retriever(deep.output, Opening("cpu")).retrieve([Query("q", "otter")], PLACE)
    assert hits[-1].id == f"p{PLACE}"
    assert "| bm25 | BM25 | single | 0.0 | 0.0 | 0.0 | 100.0 |" in page_text(deep.output / "report.html")
