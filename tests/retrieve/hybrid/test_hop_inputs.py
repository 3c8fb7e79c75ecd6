"""What a generator and a hybrid read of the evidence: excerpts, where the model learned to read such."""

from pathlib import Path
from typing import Any

import pytest
from small_data import scratch, write_small

from grls.data.codec import Limits
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.retrieve.base import Under
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.retriever import HybridRetriever

QUERY = Query("q", "is the otter kind ?")


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> GenerativeRetriever:
    data = write_small(tmp_path_factory.mktemp("inputs") / "data")
    model, tokenizer = scratch(data).load()
    return GenerativeRetriever.assemble(model.eval(), tokenizer, Corpus.read(data), Limits(evidence=2))


def expected(generator: GenerativeRetriever) -> list[int]:
    rows = generator.codec.excerpts(QUERY.text, generator.corpus.passages([1]))
    assert len(rows[0]) < len(generator.sequences([1])[0])
    return generator.codec.model_input(generator.encode([QUERY])[0], rows)


def test_inputs_of_a_hop_hold_excerpts(
    generator: GenerativeRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs: list[Any] = []

    def search(given: list[list[int]], k: int, *rest: Any, **more: Any) -> list[list[Any]]:
        inputs.append(given)
        return [[] for _ in given]

    monkeypatch.setattr(generator, "search", search)
    generator.next_hop([QUERY], None)([Under(0, (1,), (1,))], 1, 2)
    HybridRetriever(generator, []).next_hop([QUERY], None)([Under(0, (1,), (1,))], 1, 2)
    assert inputs == [[expected(generator)], [expected(generator)]]


def test_a_folder_keeps_the_limit_of_evidence(generator: GenerativeRetriever, tmp_path: Path) -> None:
    generator.save_pretrained(tmp_path / "r")
    opened = GenerativeRetriever.from_pretrained(tmp_path / "r", device="cpu")
    assert opened.codec.limits.evidence == 2
    assert opened.fingerprint() == generator.fingerprint()
