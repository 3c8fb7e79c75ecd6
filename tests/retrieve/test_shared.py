"""A folder that several members name is opened once, and finds what it would find alone."""

from pathlib import Path
from typing import Any

import pytest
from composite_specs import write_kinds, written

from grls.errors import ConfigError
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.registry import Opening, load_retriever

TEXTS = ["is the otter calm ?", "is the lynx quick ?"]
HYBRID = {
    "kind": "hybrid", "generator": "../generative", "search": {"beams": 3, "batch_size": 2},
    "priors": [{"retriever": "../dense"}, {"retriever": "bm25"}],
}  # fmt: skip
FUSION = {"kind": "fusion", "members": ["bm25", "../dense", "../generative", "../hybrid-3"], "method": "rrf"}
ON_CPU = Opening("cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = write_kinds(tmp_path_factory.mktemp("shared"))
    written(place / "hybrid-3", HYBRID)
    written(place / "all", FUSION)
    return place


def test_members_share_model_passages_and_words(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    for kind in (DenseRetriever, GenerativeRetriever, BM25Retriever):

        def count(
            self: Any, *given: Any, make: Any = kind.__init__, name: str = kind.kind, **more: Any
        ) -> None:
            opened.append(name)
            make(self, *given, **more)

        monkeypatch.setattr(kind, "__init__", count)
    fusion: Any = load_retriever(place / "all", ON_CPU)
    assert sorted(opened) == ["bm25", "dense", "generative"]
    bm25, dense, generator, hybrid = fusion.members
    assert hybrid.generator.model is generator.model
    assert (hybrid.generator.options.beams, generator.options.beams) == (3, 10)
    prior = hybrid.priors[0].source.retriever
    assert prior.rows is dense.rows
    assert (prior.batch_size, dense.batch_size) == (2, 32)
    assert hybrid.priors[1].source.retriever is bm25

    alone = [load_retriever(place / name, ON_CPU) for name in ("dense", "generative", "hybrid-3")]
    for member, one in zip(fusion.members[1:], alone, strict=True):
        for _ in range(2):  # one after the other, and again: none leaves anything in the other
            assert member.retrieve(TEXTS, 4) == one.retrieve(TEXTS, 4)
    assert load_retriever(place / "dense", ON_CPU) is not load_retriever(place / "dense", ON_CPU)


def test_options_that_a_kind_cannot_use_are_refused_of_what_is_shared(place: Path) -> None:
    how = Opening("cpu", opened={})
    load_retriever(place / "dense", how)
    load_retriever(place / "generative", how)
    for name, what in (("dense", "which rescores nothing"), ("generative", "has not learned to rescore")):
        with pytest.raises(ConfigError, match=what):
            load_retriever(place / name, Opening("cpu", search=SearchOptions(rescore=5), opened=how.opened))


def test_another_precision_is_not_shared(place: Path) -> None:
    how = Opening("cpu", opened={})
    first: Any = load_retriever(place / "dense", how)
    second: Any = load_retriever(place / "dense", Opening("cpu", "bfloat16", opened=how.opened))
    assert second.encoder is not first.encoder
