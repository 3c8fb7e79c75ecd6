"""Composites of searchers: they agree with folders that are written by hand, and keep what they name."""

import gc
from pathlib import Path

from composite_specs import COMPOSITES, written
from failing import raises

import grls
from grls.api.searcher import Searcher
from grls.data.types import Hit
from grls.errors import ConfigError, GrlsError
from grls.retrieve.spec import read_spec

TEXTS = ["is the otter calm ?", "is the lynx quick ?", "is the heron proud ?"]


def load(place: Path) -> Searcher:
    return grls.load(place, device="cpu")


def same(one: Searcher, other: Searcher) -> None:
    assert one.search(TEXTS, 4) == other.search(TEXTS, 4)
    assert one.retriever.fingerprint() == other.retriever.fingerprint()


def test_a_hybrid_is_that_of_its_folder(kinds: Path) -> None:
    made = load(kinds / "generative").with_priors(
        load(kinds / "dense"), "bm25", weights=[0.5, 1.0], empty_weight=0.2, done_share=-1.5
    )
    spec = dict(COMPOSITES["hybrid"])
    spec["priors"] = [{"retriever": "../dense", "weight": 0.5}, {"retriever": {"kind": "bm25"}}]
    by_hand = load(written(kinds / "plain-hybrid", spec))
    assert made.search(TEXTS, 4) == by_hand.search(TEXTS, 4)
    same(made, load(made.folder))


def test_hops_are_those_of_a_folder(kinds: Path) -> None:
    same(load(kinds / "dense").hops(max=3), load(kinds / "ranked"))
    chains = load(kinds / "generative").hops(max=3, steps="dynamic", chains=2, done_bias=0.5)
    same(chains, load(kinds / "hops"))
    assert load(kinds / "dense").hops().describe().label == "biencoder ranked by 4 hops"
    same(chains.hops(max=2), load(kinds / "generative").hops(max=2))  # hops replace hops


def test_a_fusion_is_that_of_its_folder(kinds: Path) -> None:
    bm25, dense = load(kinds / "bm25"), load(kinds / "dense")
    same(grls.fuse([bm25, dense], method="rrf", weights=[2.0, 0.5], depth=7), load(kinds / "fusion"))
    same(grls.fuse(["bm25", dense]), grls.fuse([bm25, dense]))
    generator, dynamic = load(kinds / "generative"), {"steps": "dynamic", "max": 3}
    chains = grls.fuse([generator.hops(**dynamic), dense.hops(**dynamic)], length="max")
    same(chains, load(kinds / "chains"))


def test_what_is_rescored_is_that_of_its_folder(kinds: Path) -> None:
    made = load(kinds / "dense").rescored(kinds / "encoder", passages=3, weight=0.5)
    assert made.search(TEXTS, 4) == load(kinds / "rescored").search(TEXTS, 4)
    assert "fingerprint" in read_spec(made.folder)


def test_a_folder_is_temporary_or_where_the_user_says(kinds: Path, tmp_path: Path) -> None:
    dense = load(kinds / "dense")
    kept = dense.hops(max=2, output=tmp_path / "kept")
    assert kept.folder == tmp_path / "kept"
    gone = dense.hops(max=2)
    folder = gone.folder
    assert folder.is_dir()
    del kept, gone
    gc.collect()
    assert (tmp_path / "kept" / "grls.json").is_file()
    assert not folder.exists()


def test_temporary_members_live_as_long_as_what_names_them(kinds: Path) -> None:
    dense, bm25 = load(kinds / "dense"), load(kinds / "bm25")
    inner = grls.fuse([dense, bm25], method="rrf")
    folder = inner.folder
    outer = inner.hops(max=2, temperature=0.01)
    expected = outer.search(TEXTS, 3)
    del inner
    gc.collect()
    assert folder.is_dir()
    assert load(outer.folder).search(TEXTS, 3) == expected
    stream = outer.stream(TEXTS[0])
    del outer
    gc.collect()
    assert folder.is_dir()  # the hops that come hold it
    assert [hop.number for hop in stream] == [1, 2]
    del stream
    gc.collect()
    assert not folder.exists()


def test_bad_input(kinds: Path, tmp_path: Path) -> None:
    dense, generator = load(kinds / "dense"), load(kinds / "generative")
    output = tmp_path / "made"
    for call, said in (
        (lambda: generator.with_priors(dense, weights=[1, 2], output=output), "2 weights for 1 prior"),
        (
            lambda: generator.with_priors(dense, weigth=1, output=output),
            "no argument 'weigth'; did you mean weight",
        ),
        (lambda: generator.with_priors(dense.hops(), output=output), "does not score all passages"),
        (lambda: generator.with_priors(3, output=output), r"priors\[0\] must be a Searcher or a path, got 3"),
        (lambda: dense.hops(steps="single", output=output), "a single step has no hops"),
        (
            lambda: grls.fuse(dense, output=output),
            "searchers must be a list of Searcher objects or texts or paths",
        ),
        (
            lambda: grls.fuse(["bm25", "bm25"], output=output),
            "fuse: searchers must be a list of at least two retrievers, one of them a searcher",
        ),
        (
            lambda: grls.fuse([dense, "bm25"], method="best", output=output),
            "one of interleave, rrf, sum, got 'best'",
        ),
        (lambda: dense.rescored(kinds / "bert", output=output), "CrossEncoder"),
        (lambda: dense.rescored(kinds / "encoder", weight=-1, output=output), "weight must be at least 0"),
        (lambda: dense.hops(output=kinds), "exists and holds no grls.json"),
    ):
        raises(GrlsError, said, call)
        assert not output.exists(), said
    raises(ConfigError, "hops: max must be a whole number, got 'three'", dense.hops, "three")


def test_a_composite_opens_as_its_first_member_was_opened(kinds: Path) -> None:
    searcher = grls.load(kinds / "dense", device="cpu", precision="bfloat16")
    assert searcher.hops().opening == searcher.opening
    assert isinstance(searcher.hops().search(TEXTS[0])[0], Hit)
