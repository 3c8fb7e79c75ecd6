"""Folders of every kind: opened as they were saved, nested, embedded, moved; and what is refused."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from composite_specs import COMPOSITES, DYNAMIC, SIZE, write_kinds, written
from small_data import passages, queries

from grls.data.corpus import Corpus
from grls.data.types import Hit, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.retrieve import registry
from grls.retrieve.base import Description, FindsChains, Retriever, unended_fingerprint, untuned_fingerprint
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.fusion.cut import SetSize
from grls.retrieve.fusion.retriever import FusedChains, FusionRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever, as_generator
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.registry import KINDS, Opening, load_named, load_retriever, register
from grls.retrieve.spec import own_sum, read_spec, update_spec

ASKED = queries()[::4]
CPU = Opening("cpu")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of the kinds that hold data of their own."""
    return write_kinds(tmp_path_factory.mktemp("kinds"))


@pytest.fixture
def place(shared: Path, tmp_path: Path) -> Path:
    """A copy of them, to be changed and moved."""
    return Path(shutil.copytree(shared, tmp_path / "place"))


def answers(retriever: Any) -> Any:
    """All that a retriever finds and says."""
    chains = retriever.retrieve_chains(ASKED) if isinstance(retriever, FindsChains) else None
    return retriever.retrieve(ASKED, 5), chains, retriever.describe(), retriever.fingerprint()


def moved_into(spec: Any, prefix: str) -> Any:
    """A specification whose paths lead from another folder."""
    if isinstance(spec, str):
        return spec.replace("../", prefix)
    if isinstance(spec, list):
        return [moved_into(one, prefix) for one in spec]
    return {k: moved_into(v, prefix) for k, v in spec.items()} if isinstance(spec, dict) else spec


def save_again(opened: Any, folder: Path) -> None:
    """By the class of the kind, beside the members."""
    beside = folder.parent
    if isinstance(opened, HybridRetriever):
        opened.save_pretrained(folder, beside / "generative", [beside / "dense", {"kind": "bm25"}])
    elif isinstance(opened, FusedChains):
        opened.save_pretrained(folder, COMPOSITES["chains"]["members"])
    elif isinstance(opened, FusionRetriever):
        opened.save_pretrained(folder, [beside / "bm25", beside / "dense"])
    elif opened.kind == "rescored":
        opened.save_pretrained(folder, beside / "dense", str(beside / "encoder"))
    else:
        opened.save_pretrained(folder, beside / ("generative" if opened.kind == "hops" else "dense"))


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_opens_as_it_was_saved_wherever_its_parent_is(place: Path, name: str) -> None:
    opened = load_retriever(written(place / "x", COMPOSITES[name]), CPU)
    expected = answers(opened)
    save_again(opened, place / "y")
    assert answers(load_retriever(place / "y", CPU)) == expected
    place = place.rename(place.with_name("elsewhere"))
    assert answers(load_retriever(place / "y", CPU)) == expected
    stored = read_spec(place / "y")
    stored.pop("fingerprint", None)
    assert stored == {"format": 1} | COMPOSITES[name]


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_is_a_member_by_its_folder_or_embedded(shared: Path, tmp_path: Path, name: str) -> None:
    """Two levels deep: a fusion of it and of BM25, whose first member is named and then embedded."""
    prefix = f"{shared}/"
    spec = moved_into(COMPOSITES[name], prefix)
    inner = load_retriever(written(tmp_path / "inner", spec), CPU)
    rest = {"kind": "bm25", "corpus": f"{prefix}data"}
    found = []
    for folder, member in (("named", "../inner"), ("embedded", spec)):
        cut = {"kind": "cut", "retriever": member, "depth": 4, "size": SIZE} if name == "fusion" else member
        opened = load_retriever(written(tmp_path / folder, {"kind": "fusion", "members": [cut, rest]}), CPU)
        assert isinstance(opened, FusionRetriever)
        assert answers(opened.members[0])[:2] == answers(_cut(inner) if name == "fusion" else inner)[:2]
        found.append(opened.retrieve(ASKED, 5))
    assert found[0] == found[1]


def _cut(inner: Retriever) -> Retriever:
    from grls.retrieve.fusion.cut import CutRetriever, _Record

    record = _Record(**{k: tuple(v) if isinstance(v, list) else v for k, v in SIZE.items()})
    return CutRetriever(inner, SetSize.from_record(record), 4)


TUNED: dict[str, dict[str, Any]] = {
    "hybrid": {
        "priors": [{"retriever": "../dense", "weight": 9.0}, {"retriever": {"kind": "bm25"}, "weight": 0.0}],
        "empty_weight": 0.0, "search": {"rescore_weight": 2.0},
    },
    "hops": {"hops": DYNAMIC | {"done_bias": -1.0, "choose": "expected-f1"}},
    "fusion": {"weights": [0.1, 0.9]},
    "chains": {"method": "rrf", "weights": [0.1, 0.9]},
    "cut": {"size": None},
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
    cuts = [load_retriever(written(place / "cut", COMPOSITES["cut"] | {"retriever": "../x"}), CPU)]
    written(folder, COMPOSITES[name])
    cuts += [load_retriever(place / "cut", CPU)]
    assert untuned_fingerprint(cuts[0]) != untuned_fingerprint(cuts[1])


def test_what_ends_chains_is_no_part_of_the_unended_fingerprint(place: Path) -> None:
    hops = {"steps": "dynamic", "max": 4, "done_bias": 0.1}
    ended = load_retriever(written(place / "ended", COMPOSITES["hops"] | {"hops": hops}), CPU)
    for changed in ({"steps": "fixed"}, {"max": 9}, {"done_bias": -1.0}, {"steps": "fixed", "pool": True}):
        options = hops | {"done_bias": 0.0} | changed
        other = load_retriever(written(place / "other", COMPOSITES["hops"] | {"hops": options}), CPU)
        assert unended_fingerprint(other) == unended_fingerprint(ended)
    wider = load_retriever(written(place / "wider", COMPOSITES["hops"] | {"hops": hops | {"chains": 3}}), CPU)
    single = load_retriever(place / "dense", CPU)
    cut = load_retriever(written(place / "cut", {"kind": "cut", "retriever": "../dense", "depth": 5}), CPU)
    assert unended_fingerprint(cut) == unended_fingerprint(single)
    assert len({unended_fingerprint(one) for one in (ended, wider, single)}) == 3


def test_every_kind_is_registered_by_a_class_that_names_it() -> None:
    for kind in KINDS:
        assert registry.class_of(kind).kind == kind  # type: ignore[attr-defined]


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
    chains = {
        "kind": "fusion",
        "members": ["../generative", {"kind": "hops", "retriever": "../dense", "hops": DYNAMIC}],
    }
    assert isinstance(load_retriever(written(place / "z", chains), CPU), FusedChains)
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
    few = Corpus.from_passages(passages()[:3])
    assert load_named(str(place / "bm25"), few, CPU).corpus.fingerprint != few.fingerprint  # its own
    alone = {"kind": "hops", "retriever": "bm25", "hops": {"steps": "fixed", "max": 2}}
    with pytest.raises(DataError, match=r"x/grls\.json: bm25 has no passages here, .*\"corpus\""):
        load_retriever(written(place / "x", alone), CPU)


class Toy:
    """A kind of someone's own: passages by the length of their texts."""

    kind = "toy"
    heeds = ("batch_size",)

    def __init__(self, corpus: Corpus):
        self.corpus = corpus

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> "Toy":
        return cls(Corpus.read(folder / spec["corpus"]))

    def describe(self) -> Description:
        return Description("toy", "length")

    def fingerprint(self) -> str:
        return f"toy {self.corpus.fingerprint}"

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Any = None) -> list[list[Hit]]:
        found = sorted((Hit(p.id, float(len(p.text))) for p in self.corpus), key=lambda hit: -hit.score)
        return [found[:k] for _ in queries]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", dict(KINDS))
    register("toy", f"{__name__}:Toy")


@pytest.mark.usefixtures("toy")
def test_a_kind_of_ones_own_is_one_registration(place: Path) -> None:
    spec = {"kind": "toy", "corpus": "../data"}
    opened = load_retriever(written(place / "toy", spec), CPU)
    assert opened.retrieve(ASKED, 2) == Toy(Corpus.read(place / "data")).retrieve(ASKED, 2)
    fused = load_retriever(written(place / "x", {"kind": "fusion", "members": ["../toy", "bm25", spec]}), CPU)
    assert isinstance(fused, FusionRetriever)
    assert [member.kind for member in fused.members] == ["toy", "bm25", "toy"]
    register("toy", f"{__name__}:Toy")  # the same once more
    with pytest.raises(ConfigError, match=r"the kind 'toy' is .*:Toy already; choose another name"):
        register("toy", "elsewhere:Toy")
    update_spec(place / "toy", {"search": {"beams": 3}})
    with pytest.raises(
        DataError, match=r"search\.beams has no effect on a retriever of kind 'toy': .*use batch_size"
    ):
        load_retriever(place / "toy", CPU)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("target", ["nowhere.at.all:Toy", "grls.retrieve.bm25:Missing", "grls.retrieve.bm25"])
def test_a_kind_that_cannot_be_imported_is_named(place: Path, target: str) -> None:
    register("other", target)
    with pytest.raises(
        DataError, match=rf"x/grls\.json: the kind 'other' is {target}, which cannot be imported"
    ):
        load_retriever(written(place / "x", {"kind": "other"}), CPU)


@pytest.mark.parametrize("name", ["dense", "bm25"])
@pytest.mark.parametrize("option", ["beams", "compile", "rescore"])
def test_options_that_a_kind_has_no_use_for_are_refused(place: Path, name: str, option: str) -> None:
    update_spec(place / name, {"search": {option: True if option == "compile" else 3}})
    with pytest.raises(
        DataError, match=rf"{name}/grls\.json: search\.{option} has no effect on .*kind '{name}'"
    ):
        load_retriever(place / name, CPU)


def test_a_newer_format_of_a_kind_with_data_is_refused(place: Path) -> None:
    for name in ("generative", "dense", "bm25"):
        spec = read_spec(place / name) | {"format": 9}
        if "sha256" in spec:
            spec["sha256"] = own_sum(spec)
        (place / name / "grls.json").write_text(json.dumps(spec))
        with pytest.raises(DataError, match=r"grls\.json: .*format"):
            load_retriever(place / name, CPU)


def test_a_tuned_folder_keeps_its_checksum(place: Path) -> None:
    update_spec(place / "generative", {"search": {"beams": 4}, "hops": {"steps": "fixed", "max": 2}})
    assert load_retriever(place / "generative", Opening("cpu", verify=True)).describe().options["beams"] == 4
    spec = read_spec(place / "generative")
    (place / "generative" / "grls.json").write_text(json.dumps(spec | {"stages": ["retrieve"]}))
    with pytest.raises(MismatchError, match=r"grls\.json has changed"):
        load_retriever(place / "generative", CPU)
