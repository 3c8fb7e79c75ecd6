"""A T5 hop by hop: spans, excerpts, a teacher, DONE, mined passages, priors and rescoring, all at once.

What each of them does is tested where it is defined; here they must go together, from the data to the chains.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from train_helpers import chain_module, chain_options

from grls.cli import main
from grls.data.dataset import read_split
from grls.data.types import Query
from grls.models.load.generators import Pretrained
from grls.retrieve.base import ChainToContinue, FindsChains
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.registry import Opening, load_retriever
from grls.train.generator.data import RetrieveData
from grls.train.options import RetrieveDataOptions

EVIDENCE_WORDS = 3


@pytest.fixture(scope="module")
def root(root: Path) -> Path:
    """With a T5 that was trained with everything: ``trained``, ``r``, ``hybrid``."""
    given = chain_options(
        root, root / "trained", "--data.spans.words=3", "--data.spans.drawn=2", "--data.multistep=true",
        "--data.done=true", "--data.by_hop=true", f"--data.evidence_words={EVIDENCE_WORDS}",
        f"--data.teacher={root / 'dense'}", "--data.teacher_share=0.3", "--data.branches=1",
        "--data.rescore.retrievers=[bm25]", "--data.rescore.passages=3", "--recall.rescore=4",
        "--recall.hops=2", "--recall.k=2", t5=True,
    )  # fmt: skip
    assert main(given) == 0
    model = root / "trained" / "model"
    assert main(["index", str(model), f"--corpus={root / 'data'}", f"--output={root / 'r'}"]) == 0
    priors = json.dumps([{"retriever": str(root / "dense")}, {"retriever": "bm25"}])
    assert (
        main(["index", "hybrid", str(root / "r"), f"--output={root / 'hybrid'}", f"--priors={priors}"]) == 0
    )
    return root


def test_the_retriever_reads_hops_as_the_training_does(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = GenerativeRetriever.from_pretrained(root / "r", "cpu")
    assert generator.codec.limits.evidence == EVIDENCE_WORDS
    data = RetrieveData(RetrieveDataOptions(data=str(root / "data"), evidence_words=EVIDENCE_WORDS))
    data.read(chain_module(Pretrained(str(root / "trained" / "model"))))
    chain = max((data.train_examples.draw(n, 0) for n in range(12)), key=lambda one: len(one))  # type: ignore[attr-defined]
    taken = [hop.evidence for hop in chain]
    assert max(map(len, taken)) == 2
    read: list[Any] = []
    monkeypatch.setattr(generator, "search", lambda inputs, *_: read.extend(inputs) or [[]] * len(inputs))
    find = generator.next_hop([Query("q", chain[0].query)], None)
    find([ChainToContinue(0, passages, passages) for passages in taken], 0, 2)
    assert read == [hop.source for hop in chain]


@pytest.mark.parametrize(("name", "steps"), [("r", "ranked"), ("hybrid", "fixed"), ("r", "dynamic")])
def test_hops_are_found_and_rescored(root: Path, name: str, steps: Any) -> None:
    queries, _ = read_split(root / "data", "test")
    scores = {}
    for rescore in (0, 5):
        opened = load_retriever(root / name, Opening("cpu", search=SearchOptions(rescore=rescore)))
        hops = hop_by_hop(opened, HopOptions(steps=steps, max=2))
        hits = hops.retrieve(queries, 5)
        assert all(len({hit.id for hit in row}) == len(row) > 0 for row in hits)
        scores[rescore] = [hit.score for row in hits for hit in row]
        if steps != "ranked":
            assert isinstance(hops, FindsChains)
            chains = hops.retrieve_chains(queries)
            assert all(len(best.hits) == 2 or steps == "dynamic" for (best, *_) in chains)
            scores[rescore] = [chain.score for beams in chains for chain in beams]
    assert scores[0] != scores[5]
