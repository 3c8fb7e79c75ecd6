"""Folders of every kind: opened as they were saved, nested, embedded, shared, linked; what is refused."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from composite_specs import COMPOSITES, DYNAMIC, create, written
from failing import raises
from small_data import passages, queries
from toy_kind import TARGET, ToyRetriever

import grls
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, GrlsError, MismatchError
from grls.models.biencoder import BiEncoderModel
from grls.retrieve import registry
from grls.retrieve.base import FindsChains, untuned_fingerprint
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.build import Building
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.fusion.retriever import FusionRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever, as_generator
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.registry import KINDS, Opening, load_named, load_retriever, register
from grls.retrieve.spec import followed, read_spec, update_spec, write_link

ASKED = queries()[::4]
CPU = Opening("cpu")


@pytest.fixture
def place(kinds: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kinds, tmp_path / "place"))


def answers(retriever: Any) -> Any:
    chains = retriever.retrieve_chains(ASKED) if isinstance(retriever, FindsChains) else None
    return retriever.retrieve(ASKED, 5), chains, retriever.describe(), retriever.fingerprint()


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_opens_as_it_was_saved_wherever_its_parent_is(place: Path, name: str) -> None:
    expected = answers(load_retriever(written(place / "x", COMPOSITES[name]), CPU))
    assert answers(create(place / "y", COMPOSITES[name]["kind"], COMPOSITES[name], CPU)) == expected
    assert answers(load_retriever(place / "y", CPU)) == expected
    place = place.rename(place.with_name("elsewhere"))
    assert answers(load_retriever(place / "y", CPU)) == expected
    stored = read_spec(place / "y")
    stored.pop("fingerprint", None)
    assert stored == {"format": 1} | COMPOSITES[name]


TUNED: dict[str, dict[str, Any]] = {
    "hybrid": {
        "priors": [{"retriever": "../dense", "weight": 9.0}, {"retriever": {"kind": "bm25"}, "weight": 0.0}],
        "search": {"rescore_weight": 2.0},
    },
    "hops": {"hops": DYNAMIC | {"done_bias": -1.0, "choose": "expected-f1"}},
    "fusion": {"weights": [0.1, 0.9]},
    "chains": {"method": "rrf", "weights": [0.1, 0.9]},
    "rescored": {"weight": 4.0, "passages": 7},
}  # fmt: skip
"""What tuning changes of each of them."""


@pytest.mark.parametrize("name", COMPOSITES)
def test_what_tuning_changes_is_all_that_the_untuned_fingerprint_leaves_out(place: Path, name: str) -> None:
    """A member's weights are in it: rankings depend on them."""
    folder = written(place / "x", COMPOSITES[name])
    before = load_retriever(folder, CPU)
    update_spec(folder, TUNED[name])
    after = load_retriever(folder, CPU)
    assert untuned_fingerprint(after) == untuned_fingerprint(before)
    assert after.fingerprint() != before.fingerprint()
    over = {"kind": "fusion", "members": ["../x", "../x"]}
    fused = [load_retriever(written(place / "over", over), CPU)]
    written(folder, COMPOSITES[name])
    fused += [load_retriever(place / "over", CPU)]
    assert untuned_fingerprint(fused[0]) != untuned_fingerprint(fused[1])


def test_search_that_is_stored_is_heeded(place: Path) -> None:
    """At the top, where nothing is given; of members, where what is given is as usual."""
    update_spec(place / "generative", {"search": {"beams": 3, "mode": "full", "truncate_queries": True}})
    update_spec(place / "dense", {"search": {"batch_size": 2}})
    one = load_retriever(place / "generative", CPU)
    assert isinstance(one, GenerativeRetriever)
    assert one.options == SearchOptions(3, "full", truncate_queries=True)
    given = load_retriever(place / "generative", Opening("cpu", search=SearchOptions(beams=7)))
    assert given.describe().options["beams"] == 7
    assert given.describe().score_mode == "renormalized"
    members = {"kind": "fusion", "members": ["../generative", "../dense"]}
    both = load_retriever(written(place / "x", members), Opening("cpu", search=SearchOptions(beams=7)))
    assert isinstance(both, FusionRetriever)
    first, second = both.members
    assert isinstance(first, GenerativeRetriever)
    assert isinstance(second, DenseRetriever)
    assert first.options == SearchOptions(7, "full", truncate_queries=True)
    assert second.batch_size == 2
    update_spec(place / "x", {"search": {"batch_size": 5}})
    outer = load_retriever(place / "x", CPU)
    assert isinstance(outer, FusionRetriever)
    assert [member.options.batch_size for member in outer.members[:1]] == [5]  # type: ignore[attr-defined]
    assert outer.members[1].batch_size == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["generative", "dense", "hybrid", "fusion", "rescored"])
def test_hops_that_are_stored_are_heeded_in_any_folder(place: Path, name: str) -> None:
    folder = place / name if name in ("generative", "dense") else written(place / "x", COMPOSITES[name])
    plain = load_retriever(folder, CPU)
    options = HopOptions("fixed", 2, chains=2)
    update_spec(folder, {"hops": {"steps": "fixed", "max": 2, "chains": 2}})
    opened = load_retriever(folder, CPU)
    assert isinstance(opened, HopsRetriever)
    assert opened.hops == options
    assert answers(opened) == answers(HopsRetriever(plain, options))
    update_spec(folder, {"hops": {"steps": "single"}})
    assert answers(load_retriever(folder, CPU)) == answers(plain)


def test_who_goes_hop_by_hop_goes_with_single_steps(place: Path) -> None:
    """Hops of hops are those of the outer, and what needs a generator gets the one that takes the steps."""
    generator = load_retriever(place / "generative", CPU)
    update_spec(place / "generative", {"hops": DYNAMIC})
    opened = load_retriever(place / "generative", CPU)
    outer = HopsRetriever(opened, HopOptions("fixed", 2))
    assert answers(outer) == answers(HopsRetriever(generator, HopOptions("fixed", 2)))
    assert (
        answers(load_retriever(written(place / "x", COMPOSITES["hops"]), CPU))[:2]
        == answers(HopsRetriever(generator, HopOptions("dynamic", 3, 2, done_bias=0.5)))[:2]
    )
    assert isinstance(as_generator(opened, "x"), GenerativeRetriever)
    assert isinstance(load_retriever(written(place / "y", COMPOSITES["hybrid"]), CPU), HybridRetriever)
    with pytest.raises(ConfigError, match="give the folder of a generative retriever; this one is dense"):
        as_generator(load_retriever(place / "dense", CPU), "x")


def test_bm25_among_members_is_over_their_corpus(place: Path) -> None:
    for members in (["bm25", "../dense"], ["../dense", {"kind": "bm25", "k1": 2.0}]):
        opened = load_retriever(written(place / "x", {"kind": "fusion", "members": members}), CPU)
        assert isinstance(opened, FusionRetriever)
        assert sorted(member.kind for member in opened.members) == ["bm25", "dense"]
        assert opened.members[members.index("../dense")].kind == "dense"
    words = load_named("bm25", Corpus.read(place / "data"))
    assert words.retrieve(ASKED, 3) == load_retriever(place / "bm25", CPU).retrieve(ASKED, 3)
    folder, copy = str(place / "bm25"), Corpus.from_passages(passages(), "copy")
    few = Corpus.from_passages(passages()[:3], "few")
    assert load_named(folder, copy, CPU).retrieve(ASKED, 3) == words.retrieve(ASKED, 3)
    raises(MismatchError, "over another corpus .* than few", load_named, folder, few, CPU)
    alone = {"kind": "hops", "retriever": "bm25", "hops": {"steps": "fixed", "max": 2}}
    with pytest.raises(DataError, match=r"x/grls\.json: bm25 has no passages here, .*\"corpus\""):
        load_retriever(written(place / "x", alone), CPU)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", dict(KINDS))
    register("toy", TARGET)


@pytest.mark.usefixtures("toy")
def test_a_kind_of_ones_own_is_one_registration(place: Path) -> None:
    ToyRetriever.build("", str(place / "data"), Building(str(place / "toy"), "toy"))
    opened = load_retriever(place / "toy", CPU)
    assert opened.retrieve(ASKED, 2) == ToyRetriever(Corpus.read(place / "data")).retrieve(ASKED, 2)
    fused = load_retriever(written(place / "x", {"kind": "fusion", "members": ["../toy", "bm25"]}), CPU)
    assert isinstance(fused, FusionRetriever)
    assert [member.kind for member in fused.members] == ["toy", "bm25"]
    register("toy", TARGET)  # the same once more
    with pytest.raises(ConfigError, match=r"the kind 'toy' is .*:ToyRetriever already; choose another name"):
        register("toy", "elsewhere:Toy")
    update_spec(place / "dense", {"search": {"beams": 3}})
    with pytest.raises(DataError, match=r"dense/grls\.json: search\.beams has no effect on .*kind 'dense'"):
        load_retriever(place / "dense", CPU)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("target", ["nowhere.at.all:Toy", "grls.retrieve.bm25:Missing", "grls.retrieve.bm25"])
def test_a_kind_that_cannot_be_imported_is_named(place: Path, target: str) -> None:
    register("other", target)
    with pytest.raises(
        DataError, match=rf"x/grls\.json: the kind 'other' is {target}, which cannot be imported"
    ):
        load_retriever(written(place / "x", {"kind": "other"}), CPU)


TEXTS = ["is the otter calm ?", "is the lynx quick ?"]
BOTH_PRIORS = {
    "kind": "hybrid", "generator": "../generative", "search": {"beams": 3, "batch_size": 2},
    "priors": [{"retriever": "../dense"}, {"retriever": "bm25"}],
}  # fmt: skip
FOUR_MEMBERS = {
    "kind": "fusion", "members": ["bm25", "../dense", "../generative", "../hybrid-3"], "method": "rrf",
}  # fmt: skip
ON_CPU = Opening("cpu")


@pytest.fixture(scope="module")
def sharing(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = Path(shutil.copytree(kinds, tmp_path_factory.mktemp("sharing") / "kinds"))
    written(place / "hybrid-3", BOTH_PRIORS)
    written(place / "all", FOUR_MEMBERS)
    return place


def test_members_share_model_passages_and_words(sharing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    for kind in (DenseRetriever, GenerativeRetriever, BM25Retriever):

        def count(
            self: Any, *given: Any, make: Any = kind.__init__, name: str = kind.kind, **more: Any
        ) -> None:
            opened.append(name)
            make(self, *given, **more)

        monkeypatch.setattr(kind, "__init__", count)
    fusion: Any = load_retriever(sharing / "all", ON_CPU)
    assert sorted(opened) == ["bm25", "dense", "generative"]
    bm25, dense, generator, hybrid = fusion.members
    assert hybrid.generator.model is generator.model
    assert (hybrid.generator.options.beams, generator.options.beams) == (3, 10)
    prior = hybrid.priors[0].source
    assert prior.rows is dense.rows
    assert (prior.batch_size, dense.batch_size) == (2, 32)
    assert hybrid.priors[1].source is bm25

    alone = [load_retriever(sharing / name, ON_CPU) for name in ("dense", "generative", "hybrid-3")]
    for member, one in zip(fusion.members[1:], alone, strict=True):
        for _ in range(2):  # one after the other, and again: none leaves anything in the other
            assert member.retrieve(TEXTS, 4) == one.retrieve(TEXTS, 4)
    assert load_retriever(sharing / "dense", ON_CPU) is not load_retriever(sharing / "dense", ON_CPU)


THREE = queries()[:3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that names a fusion within it."""
    place = tmp_path / "run"
    words = BM25Retriever(Corpus.from_passages(passages()))
    for name in ("one", "other"):
        words.save_pretrained(place / "members" / name)
    members = ["../one", "../other"]
    written(place / "members" / "fused", {"kind": "fusion", "members": members, "method": "rrf"})
    (place / "notes.txt").write_text("kept")
    write_link(place, place / "members" / "fused")
    return place


def test_it_opens_as_the_retriever_that_it_names_wherever_it_is_moved(folder: Path, tmp_path: Path) -> None:
    before = load_retriever(folder / "members" / "fused", CPU)
    moved = Path(shutil.move(folder, tmp_path / "elsewhere"))
    opened = load_retriever(moved, CPU)
    assert opened.retrieve(THREE, 4) == before.retrieve(THREE, 4)
    assert (opened.describe(), opened.fingerprint()) == (before.describe(), before.fingerprint())
    assert [hit.id for hit in grls.load(moved).search(THREE[0], 4)] == [
        hit.id for hit in before.retrieve(THREE[:1], 4)[0]
    ]
    assert (moved / "notes.txt").read_text() == "kept"


def test_a_member_may_be_a_link_and_a_link_may_name_a_link(folder: Path) -> None:
    again = written(folder.parent / "again", {"kind": "link", "retriever": "../run"})
    around = written(
        folder.parent / "around", {"kind": "fusion", "members": ["../again", "../run/members/one"]}
    )
    assert followed(again) == again / "../run" / "members/fused"
    assert len(load_retriever(around, CPU).retrieve(THREE, 3)) == 3
    embedded = {"kind": "fusion", "members": [{"kind": "link", "retriever": "../run"}, "../run"]}
    assert load_retriever(written(folder.parent / "embedded", embedded), CPU).retrieve(THREE, 3)


BAD_LINKS: list[tuple[dict[str, Any], str]] = [
    ({"retriever": "."}, "which leads back here: name another"),
    ({"retriever": "../gone"}, r"names \.\./gone, but there is no retriever at .*: move it back"),
    ({"retriever": 3}, "expected the path"), ({}, "field 'retriever' is missing"),
    ({"retriever": "members/one", "search": {"beams": 3}}, "a link has no search: write it into"),
    ({"retriever": "members/one", "weights": [1]}, "unknown field 'weights' of kind 'link'"),
    ({"retriever": "members/one", "format": 2}, "format 2 of a retriever of kind 'link'"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "error"), BAD_LINKS)
def test_a_link_that_leads_nowhere_is_refused_by_its_file(
    folder: Path, spec: dict[str, Any], error: str
) -> None:
    written(folder, {"kind": "link"} | spec)
    raises(DataError, rf"run/grls\.json: .*{error}", load_retriever, folder, CPU)


FUSION, HOPS = COMPOSITES["fusion"], COMPOSITES["hops"]
HYBRID, RESCORED = COMPOSITES["hybrid"], COMPOSITES["rescored"]
PRIOR = {"retriever": "../dense"}
PRIOR_GONE, PRIOR_OTHER = [{"retriever": "../gone"}], [{"retriever": "../other"}]
BAD: list[tuple[dict[str, Any], type[GrlsError], str]] = [
    ({"kind": "unknown"}, DataError, "unknown kind of retriever 'unknown'; known are bm25, .* `grls index`"),
    (HOPS | {"retriever": "../gone"}, DataError, "retriever names ../gone, but"),
    (HOPS | {"retriever": "."}, DataError, r"retriever names \., which is this retriever itself"),
    (HOPS | {"format": 9}, DataError, "format 9 of a .* 'hops'; this version reads 1: install a newer"),
    (FUSION | {"members": ["../bm25"]}, ConfigError, "at least two members"),
    (FUSION | {"method": "vote"}, DataError, r"fusion: method must be .*, got 'vote'"),
    (FUSION | {"members": ["../bm25", "../other"]}, MismatchError, r"members\[1\] Dense"),
    (FUSION | {"hops": DYNAMIC}, DataError, "hops: fusion never writes DONE: choose"),
    (FUSION | {"search": {"rescore": 3}}, ConfigError, "rescores nothing: leave rescore out"),
    (HOPS | {"hops": {"steps": "single"}}, ConfigError, "a single step has no hops: choose"),
    (HOPS | {"retriever": "../bm25"}, ConfigError, "bm25 never writes DONE: choose"),
    (HYBRID | {"generator": "../dense"}, ConfigError, "priors look ahead for a generator: give"),
    (HYBRID | {"priors": [{"weight": 1}]}, DataError, r"priors\[0\]: the field 'retriever' is missing"),
    (HYBRID | {"priors": [{"retriever": "../generative"}]}, ConfigError, "all passages"),
    (HYBRID | {"priors": PRIOR_OTHER}, MismatchError, "other is over"),
    (HYBRID | {"priors": [PRIOR | {"weight": -1}]}, DataError, r"priors\[0\]: weight must be .*at least 0"),
    (HYBRID | {"priors": []}, ConfigError, "priors is empty: name a retriever"),
    (HYBRID | {"priors": [PRIOR, {"retriever": {"k1": 2}}]}, DataError, r"priors\[1\]: .* 'kind' is missing"),
    (HYBRID | {"generator": {"kind": "generative"}}, DataError, "generator: .*its folder"),
    (HYBRID | {"priors": {}}, DataError, r"hybrid: priors must be a list of dicts, got \{\}"),
    (RESCORED | {"weight": math.inf}, DataError, r"rescored: weight must be a finite number"),
    (RESCORED | {"model": 3}, DataError, "model: expected a folder or hub name"),
    (RESCORED | {"model": "../gone"}, DataError, "model names ../gone, and there is no cross-encoder at"),
    ({"model": "a"}, DataError, "expected an object with the kind"),
]  # fmt: skip


@pytest.fixture(scope="module")
def shared(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    shared = Path(shutil.copytree(kinds, tmp_path_factory.mktemp("refused") / "kinds"))
    biencoder = BiEncoderModel.load(str(shared / "bert"), device="cpu")
    DenseRetriever.assemble(biencoder, Corpus.from_passages(passages()[:3])).save_pretrained(shared / "other")
    return shared


@pytest.mark.parametrize(("spec", "error", "says"), BAD, ids=[f"{n}" for n in range(len(BAD))])
def test_what_cannot_be_names_file_field_and_remedy(
    shared: Path, spec: dict[str, Any], error: type[GrlsError], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the folder's name is the first letter of a text, such as that of ``an ensemble``."""
    monkeypatch.chdir(shared)
    with pytest.raises(error, match=rf"(?s)^a/grls\.json: .*({says})") as caught:
        load_retriever(written(Path("a"), spec), CPU)
    assert type(caught.value) is error


def test_members_in_a_circle_are_refused(place: Path) -> None:
    written(place / "x", HOPS | {"retriever": "../y"})
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


def test_members_that_are_named_very_often_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grls.retrieve.registry._MOST", 40)
    doubled = FUSION | {"members": ["../bm25", "../bm25"]}
    for level in range(5):  # 2, 6, 14, 30 and 62 members, by links and in one file
        folder = written(place / str(level), {"kind": "fusion", **doubled})
        doubled = FUSION | {"members": [f"../{level}", {"kind": "fusion", **doubled}]}
        if level < 4:
            assert load_retriever(folder, CPU).kind == "fusion"
    raises(DataError, r"has more than 40 members.*take some out", load_retriever, folder, CPU)
