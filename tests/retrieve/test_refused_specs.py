"""Specifications that cannot be opened: the error names the file, the field and the remedy."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from composite_specs import COMPOSITES, DYNAMIC, SIZE, write_kinds, written
from small_data import passages

from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, GrlsError, MismatchError
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import update_spec

CPU = Opening("cpu")
CUT, FUSION, HOPS = (COMPOSITES[name] for name in ("cut", "fusion", "hops"))
HYBRID, RESCORED = COMPOSITES["hybrid"], COMPOSITES["rescored"]
PRIOR = {"retriever": "../dense"}
PRIOR_GONE, PRIOR_OTHER = [{"retriever": "../gone"}], [{"retriever": "../other"}]
BAD: list[tuple[dict[str, Any], type[GrlsError], str]] = [
    ({"kind": "unknown"}, DataError, "unknown kind of retriever 'unknown'; known are bm25, .* `grls index`"),
    ({"kind": 3}, DataError, "unknown kind of retriever 3"),
    ({"kind": None}, DataError, "unknown kind of retriever None"),
    (CUT | {"retriever": "../gone"}, DataError, "retriever names ../gone, but"),
    (CUT | {"retriever": "x" * 300}, DataError, "retriever names x"),
    (CUT | {"retriever": ["a"]}, DataError, "retriever: expected the path"),
    (CUT | {"retriever": "."}, DataError, r"retriever names \., which is this retriever itself"),
    (CUT | {"retriever": "../data/../x"}, DataError, "which is this retriever itself"),
    (CUT | {"format": 9}, DataError, "format 9 of a .* 'cut'; this version reads 1: install a newer"),
    (CUT | {"depth": 0}, ConfigError, "depth must be at least 1"),
    (CUT | {"depth": "4"}, DataError, r"cut\.depth must be a whole number, got '4'"),
    (CUT | {"size": SIZE | {"mean": [1.0]}}, DataError, "size: expected 6 numbers"),
    (CUT | {"hops": DYNAMIC}, DataError, "hops: a retriever of kind 'cut' ends its chains itself"),
    (FUSION | {"members": ["../bm25"]}, ConfigError, "at least two members"),
    (FUSION | {"members": "../bm25"}, DataError, r"fusion\.members.* must be"),
    (FUSION | {"members": [3, "../dense"]}, DataError, r"fusion\.members.* must be"),
    (FUSION | {"weights": [1.0]}, ConfigError, "1 weight for 2 members"),
    (FUSION | {"method": "vote"}, DataError, r"fusion\.method must be .*, got 'vote'"),
    (FUSION | {"members": ["../bm25", "../gone"]}, DataError, r"members\[1\] names ../gone"),
    (FUSION | {"members": ["../bm25", "../other"]}, MismatchError, r"members\[1\] Dense"),
    (FUSION | {"members": ["../other", "../bm25"]}, MismatchError, r"members\[1\] BM25Retriever over"),
    (FUSION | {"hops": {"steps": "often"}}, DataError, r"hops\.steps must be .*, got 'often'"),
    (FUSION | {"hops": 3}, DataError, "hops: expected an object"),
    (FUSION | {"hops": DYNAMIC}, DataError, "hops: fusion never writes DONE: choose"),
    (FUSION | {"search": {"beams": 0}}, DataError, "search: beams must be at least 1"),
    (FUSION | {"search": {"beam": 3}}, DataError, r"search\.beam is no option; known"),
    (FUSION | {"search": {"rescore": 3}}, ConfigError, "rescores nothing: leave rescore out"),
    (HOPS | {"hops": {"steps": "single"}}, ConfigError, "a single step has no hops: choose"),
    (HOPS | {"hops": DYNAMIC | {"max": 0}}, DataError, r"hops: max must be at least 1"),
    (HOPS | {"retriever": "../bm25"}, ConfigError, "bm25 never writes DONE: choose"),
    (HYBRID | {"generator": "../dense"}, ConfigError, "priors look ahead for a generator: give"),
    (HYBRID | {"priors": {"a": 1}}, DataError, r"hybrid\.priors must be a list"),
    (HYBRID | {"priors": [{"weight": 1}]}, DataError, r"priors\[0\]: .*what is missing"),
    (HYBRID | {"priors": PRIOR_GONE}, DataError, r"priors\[0\] names ../gone"),
    (HYBRID | {"priors": [{"retriever": "../generative"}]}, ConfigError, "all passages"),
    (HYBRID | {"priors": PRIOR_OTHER}, MismatchError, "../other is over"),
    (HYBRID | {"done_share": 1.0}, DataError, "done_share must be below 0"),
    (HYBRID | {"extra": 1}, DataError, "unknown field 'extra' of kind 'hybrid'; known"),
    (HYBRID | {"done_share": "-1"}, DataError, r"hybrid\.done_share must be a number, got '-1'"),
    (HYBRID | {"empty_weight": math.nan}, DataError, r"hybrid\.empty_weight must be a finite number"),
    (HYBRID | {"empty_weight": math.inf}, DataError, r"hybrid\.empty_weight must be a finite number"),
    (HYBRID | {"empty_weight": -0.2}, DataError, "hybrid: empty_weight must be .*at least 0, got -0.2"),
    (HYBRID | {"normalized": 1}, DataError, r"hybrid\.normalized must be True or False, got 1"),
    (HYBRID | {"normalized": True, "priors": []}, DataError, "normalized is for .*there is no prior"),
    (HYBRID | {"priors": [3]}, DataError, r"hybrid\.priors\[0\] must be a dict, got 3"),
    (HYBRID | {"priors": [{"retriever": 3}]}, DataError, r"priors\[0\]\.retriever must be"),
    (HYBRID | {"priors": [PRIOR | {"weight": math.nan}]}, DataError, r"priors\[0\]\.weight must be a finite"),
    (HYBRID | {"priors": [PRIOR | {"weight": "2"}]}, DataError, r"priors\[0\]\.weight must be a number"),
    (HYBRID | {"priors": [PRIOR | {"temperature": 0}]}, DataError, r"priors\[0\]: .*temperature .* above 0"),
    (HYBRID | {"priors": [PRIOR | {"share": 1}]}, DataError, r"priors\[0\]\.share is no option; known"),
    (HYBRID | {"priors": [PRIOR, {"retriever": {"k1": 2}}]}, DataError, r"priors\[1\]: .* 'kind' is missing"),
    (HYBRID | {"generator": {"format": 1}}, DataError, "generator: .*the field 'kind' is missing"),
    (HYBRID | {"generator": {"kind": "generative"}}, DataError, "generator: .*its folder"),
    (FUSION | {"members": ["../bm25", {"kind": "dense"}]}, DataError, r"members\[1\]: .*its folder"),
    (FUSION | {"members": ["../bm25", {"model": "a"}]}, DataError, r"members\[1\]: .*'kind' is missing"),
    ({"model": "a"}, DataError, "expected an object with the kind"),
    (RESCORED | {"passages": 0}, DataError, "passages must be at least 1"),
]  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of the kinds that hold data, and ``other``, a dense retriever over other passages."""
    shared = write_kinds(tmp_path_factory.mktemp("refused"))
    biencoder = BiEncoderModel.load(str(shared / "bert"), device="cpu")
    DenseRetriever.assemble(biencoder, Corpus.from_passages(passages()[:3])).save_pretrained(shared / "other")
    return shared


@pytest.mark.parametrize(("spec", "error", "says"), BAD, ids=[f"{n}" for n in range(len(BAD))])
def test_what_cannot_be_names_file_field_and_remedy(
    shared: Path, spec: dict[str, Any], error: type[GrlsError], says: str
) -> None:
    with pytest.raises(error, match=rf"(?s)x/grls\.json: .*({says})") as caught:
        load_retriever(written(shared / "x", spec), CPU)
    assert type(caught.value) is error


@pytest.fixture
def place(shared: Path, tmp_path: Path) -> Path:
    """A copy of them, to be changed."""
    return Path(shutil.copytree(shared, tmp_path / "place"))


def test_a_member_that_names_no_kind_is_named(place: Path) -> None:
    written(place / "bare", {"retriever": "../dense", "depth": 3})
    for spec in (CUT | {"retriever": "../bare"}, HYBRID | {"priors": [{"retriever": "../bare"}]}):
        with pytest.raises(DataError, match=r"bare/grls\.json: expected an object with the kind"):
            load_retriever(written(place / "x", spec), CPU)


def test_members_in_a_circle_are_refused(place: Path) -> None:
    written(place / "x", CUT | {"retriever": "../y"})
    written(
        place / "y", COMPOSITES["fusion"] | {"members": ["../bm25", {"kind": "hops", "retriever": "../x"}]}
    )
    update_spec(place / "y", {"members": ["../bm25", {**COMPOSITES["hops"], "retriever": "../x"}]})
    with pytest.raises(
        DataError, match=r"y/grls\.json: retriever names ../x, which is this retriever itself, or one"
    ):
        load_retriever(place / "x", CPU)
    twice = {"kind": "fusion", "members": ["../bm25", "../bm25"]}  # the same twice is no circle
    assert load_retriever(written(place / "z", twice), CPU).kind == "fusion"


def test_what_is_no_retriever_is_refused(place: Path) -> None:
    with pytest.raises(DataError, match="no retriever here"):
        load_retriever(place / "data")
    with pytest.raises(ConfigError, match="folder must be a path whose names have at most 255 bytes each"):
        load_retriever("x" * 300)
    (place / "dense" / "grls.json").write_text("[]")
    with pytest.raises(DataError, match="expected an object"):
        load_retriever(place / "dense")
