"""A fit that decides by recall at a cut-off beyond the 20 passages that are usual."""

import json
import shutil
from pathlib import Path

import pytest
from fit_helpers import WORDS_ALONE, fit_options
from test_run_fit import known

from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.fitting import planner
from grls.fitting.comparing import rank_splits, read_gold
from grls.fitting.fusing import make_fusion_folder, save_fusion, system_run, tuned_fusion
from grls.fitting.progress import FitProgress
from grls.fitting.result import Fitted
from grls.fitting.run import fit_dataset
from grls.fitting.systems import FittedSystem
from grls.fitting.work import FitWork
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.registry import Opening, load_retriever

PLACE = 30
"""The place of every gold passage: a longer text on the same word stands below a shorter one."""


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    root = tmp_path_factory.mktemp("deep")
    passages = [Passage(f"p{n}", f"An otter {'swims ' * n}.") for n in range(1, 41)]
    queries = [Query(f"q{n}", f"otter {n}x", (f"p{PLACE}",)) for n in range(12)]
    parts = {"train": queries[:4], "dev": queries[4:8], "test": queries[8:]}
    qrels = {split: {query.id: {f"p{PLACE}": 1} for query in part} for split, part in parts.items()}
    write_dataset(root / "data", passages, queries, qrels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "known_speeds", known)
        options = fit_options(**WORDS_ALONE, k=PLACE)
        return fit_dataset(str(root / "data"), root / "out", options, shown=False)


def test_recall_at_a_deep_cut_off_is_that_of_the_kept_retriever(deep: Fitted) -> None:
    """It was recall@20 under the name of R@30."""
    assert deep.metrics["bm25"][f"dev R@{PLACE}"] == deep.metrics["bm25"][f"test R@{PLACE}"] == 1.0
    assert deep.metrics["bm25"]["test R@20"] == 0.0
    assert "recall 100.0 on 4 dev queries" in deep.why
    (hits,) = load_retriever(deep.output, Opening("cpu")).retrieve([Query("q", "otter")], PLACE)
    assert hits[-1].id == f"p{PLACE}"
    table = (deep.output / "report.md").read_text()
    assert "| bm25 | BM25 | single | 0.0 | 0.0 | 0.0 | 100.0 |" in table
    stages = json.loads((deep.output / "fit.json").read_text())["plan"]["stages"]
    (compare,) = (stage for stage in stages if stage["name"] == "compare")
    assert compare["options"]["k"] == PLACE


def test_a_fusion_reads_as_many_passages_of_each_member(deep: Fitted, tmp_path: Path) -> None:
    output = Path(shutil.copytree(deep.output, tmp_path / "out"))
    work = FitWork(output, fit_options(k=PLACE), "dev", FitProgress(output / "stages", False))
    shutil.copytree(work.member("bm25"), work.member("dense"))
    gold, corpus = read_gold(work, "dev"), Corpus.read(work.data)
    rank_splits(work, "dense", ["dev"], corpus, "float32")
    system = FittedSystem("bm25 + dense", ("bm25", "dense"))
    runs = [system_run(work, "dev", FittedSystem(name, (name,))) for name in system.parts]
    fusion = tuned_fusion(Fusion("sum", "min-max"), runs, gold, work.options)
    assert fusion is not None
    save_fusion(work, system, fusion, [gold], corpus)
    assert gold.recalls(system_run(work, "dev", system), PLACE) == [1.0] * 4
    make_fusion_folder(work, system, fusion)
    opened = load_retriever(work.member(system.folder), Opening("cpu"))
    run = system_run(work, "dev", system)
    for query, hits in zip(gold.queries, opened.retrieve(gold.queries, PLACE), strict=True):
        assert [hit.id for hit in hits] == [hit.id for hit in run.rankings[query.id]]
