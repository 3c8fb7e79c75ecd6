"""What stands in a retriever's grls.json: read, written, changed, and what of it is refused."""

import json
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

import pytest
from composite_specs import write_spec
from failing import raises

from grls.data.words import Analyzer
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.arguments import options
from grls.io.seal import seal
from grls.retrieve.fusion.retriever import Fusion
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hybrid.options import PriorOptions, PriorSpec
from grls.retrieve.options import merged, stored_options, stored_search
from grls.retrieve.spec import (
    MANIFEST,
    from_record,
    read_spec,
    recorded,
    refuse_broken_seal,
    refuse_changed,
    refuse_own_members,
    relative,
    update_spec,
)

FILE = Path("grls.json")


@options()
class Inner:
    size: int = 2
    name: str = "a"


@options()
class Outer:
    ratio: float
    kind: Literal["one", "two"] = "one"
    inner: Inner = field(default_factory=Inner)
    many: tuple[float, ...] | None = None
    flag: bool = False

    def __post_init__(self) -> None:
        if self.ratio < 0:
            raise ConfigError("ratio must not be negative.")


def written(folder: Path, content: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "grls.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_what_changed_since_it_was_written_is_refused(tmp_path: Path) -> None:
    """A changed weight or depth would only retrieve otherwise; who changes it takes the seal out."""
    write_spec(tmp_path / "r", "rescored", {"retriever": "../a", "depth": 30})
    refuse_broken_seal(tmp_path / "r")
    update_spec(tmp_path / "r", {"search": {"beams": 20}})
    refuse_broken_seal(tmp_path / "r")
    file = tmp_path / "r" / "grls.json"
    for before, after in (('"depth": 30', '"depth": 31'), ('"beams": 20', '"beams": 21')):
        kept = file.read_text()
        file.write_text(kept.replace(before, after))
        for refused in (lambda: refuse_broken_seal(file.parent), lambda: update_spec(file.parent, {"a": 1})):
            raises(MismatchError, r"grls\.json has changed .* take its field 'seal' out", refused)
        file.write_text(kept)
    file.write_text(json.dumps(read_spec(file.parent) | {"depth": 31}))
    refuse_broken_seal(file.parent)


@pytest.mark.parametrize(
    "content",
    [{"retriever": "."}, {"retriever": "a"}, {"members": ["../b", "a"]}, {"priors": [{"retriever": "./a"}]}],
)
def test_a_folder_is_not_replaced_with_its_member(tmp_path: Path, content: dict[str, Any]) -> None:
    """A folder is written as a whole, so a member in it would be gone."""
    written(tmp_path / "r", {"kind": "generative"})
    written(tmp_path / "r" / "a", {"kind": "bm25"})
    with pytest.raises(ConfigError, match=r"its member .*r.* would be lost: choose another folder"):
        refuse_own_members(tmp_path / "r", content)


def test_a_change_leaves_all_else(tmp_path: Path) -> None:
    written(tmp_path, {"kind": "fusion", "members": ["a", "b"], "depth": None, "search": {"beams": 3}})
    update_spec(tmp_path, {"weights": [1, 2], "search": None, "hops": None})
    assert read_spec(tmp_path) == {
        "kind": "fusion", "members": ["a", "b"], "depth": None, "weights": [1, 2],
    }  # fmt: skip
    raises(DataError, "no retriever here", update_spec, tmp_path / "gone", {})


def test_a_sealed_folder_is_known_by_every_file(tmp_path: Path) -> None:
    """A change of the manifest renews its seal, and hides no other change; the card may be edited."""
    for name in ("corpus.jsonl", "model/config.json", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1 2 3")
    written(tmp_path / "members" / "a", {"kind": "bm25"})
    seal(tmp_path / MANIFEST, {"kind": "bm25"})
    (tmp_path / "README.md").write_text("mine")
    written(tmp_path / "members" / "a", {"kind": "bm25", "search": {"beams": 20}})
    update_spec(tmp_path, {"search": {"beams": 20}})
    refuse_changed(tmp_path)
    for text, verify, fault in (("1 2 4", True, "checksum differs"), ("1 2", False, "expected 5")):
        (tmp_path / "model" / "config.json").write_text(text)
        raises(MismatchError, rf"config.json: it has changed .*{fault}", refuse_changed, tmp_path, verify)
    (tmp_path / "corpus.jsonl").unlink()
    raises(MismatchError, "corpus.jsonl: the file is missing", refuse_changed, tmp_path)


@pytest.mark.parametrize("options", [
    SearchOptions(beams=3, mode="full", early_stop=False, rescore=4, rescore_weight=0.5),
    HopOptions("dynamic", 3, 2, None, -0.5, True, True, "expected-f1"),
    HopOptions("ranked", onward=(0.5, -1.0, 0.0, 2.0, 1e-3, -4.5, 1.0)),
    Fusion("rrf", weights=(2.0, 0.5)),
    PriorOptions(True),
    PriorSpec({"kind": "bm25"}, 1.5, 3.0),
    Analyzer(language="de"),
], ids=lambda options: type(options).__name__)  # fmt: skip
def test_every_options_round_trip(options: Any) -> None:
    record = json.loads(json.dumps(recorded(options)))
    assert from_record(type(options), record, FILE, "x") == options


@pytest.mark.parametrize(("record", "says"), [
    ([1], r"x: expected an object, got \[1\]"),
    ({"ratio": 1, "size": 2}, r"x\.size is no option; known are flag, inner, kind, many, ratio"),
    ({"ratio": "1"}, r"x: ratio must be a number, got '1'"),
    ({"ratio": -1}, "x: ratio must not be negative"),
    ({}, "x: the field 'ratio' is missing; write it in"),
    ({"ratio": 1, "kind": "three"}, r"x: kind must be one of one, two, got 'three'"),
    ({"ratio": 1, "inner": {"size": 1.5}}, r"x\.inner: size must be a whole number, got 1\.5"),
    ({"ratio": 1, "inner": 3}, r"x\.inner: expected an object, got 3"),
    ({"ratio": 1, "many": [1, "2"]}, r"x: many\[1\] must be"),
    ({"ratio": 1, "flag": 1}, r"x: flag must be True or False, got 1"),
])  # fmt: skip
def test_an_option_that_cannot_be_is_named(record: Any, says: str) -> None:
    raises(DataError, rf"grls\.json: {says}", from_record, Outer, record, FILE, "x")


def test_members_stand_by_their_relative_path(tmp_path: Path) -> None:
    assert relative(tmp_path / "b" / "m", tmp_path / "a" / "r") == "../../b/m"
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert relative(tmp_path / "link" / "m", tmp_path / "link") == "m"


def test_stored_search_is_what_the_kind_can_use() -> None:
    spec = {"kind": "dense", "search": {"batch_size": 4}}
    assert stored_search(spec, FILE, ("batch_size",)) == SearchOptions(batch_size=4)
    assert stored_search({}, FILE, ()) is None
    with pytest.raises(
        DataError, match=r"grls\.json: search\.batch_size has no effect on .* 'dense': leave search"
    ):
        stored_search(spec, FILE, ())
    with pytest.raises(
        DataError, match=r"search\.batch_size has no effect .*: leave it out, or use progress"
    ):
        stored_search(spec, FILE, ("progress",))
    raises(DataError, "search: beams must be at least 1", stored_search, {"search": {"beams": 0}}, FILE)


def test_options_of_what_a_retriever_is_made_of(tmp_path: Path) -> None:
    """A hybrid decodes as its generator says; the hops of any member are the member's."""
    written(tmp_path / "g", {"kind": "generative", "search": {"beams": 4}, "hops": {"max": 2}})
    written(tmp_path / "h", {"kind": "hybrid", "generator": "../g", "search": {"beams": 5}})
    assert stored_options(tmp_path / "g") == {"search": {"beams": 4}, "hops": {"max": 2}}
    assert stored_options(tmp_path / "h") == {"search": {"beams": 5}}
    written(tmp_path / "c", {"kind": "rescored", "retriever": "../h"})
    assert stored_options(tmp_path / "c") == {"search": {"beams": 5}}
    written(tmp_path / "o", {"kind": "hops", "retriever": "../h", "hops": {"max": 9}})
    assert stored_options(tmp_path / "o") == {"search": {"beams": 5}, "hops": {"max": 9}}
    written(tmp_path / "g", {"kind": "rescored", "retriever": "../h"})  # in a circle
    assert stored_options(tmp_path / "h") == {"search": {"beams": 5}}
    assert stored_options(tmp_path / "gone") == {}
    written(tmp_path / "h", {"kind": "hybrid", "search": 3})
    raises(DataError, r"h/grls\.json: search: expected an object", stored_options, tmp_path / "h")


def test_stored_options_are_equal_to_those_of_a_call(tmp_path: Path) -> None:
    """A list of JSON is no tuple, so an option that nobody had set was taken for one that a call sets."""
    onward = [0.5, -1, 0, 2, 1e-3, -4.5, 1]
    hops = {"steps": "ranked", "onward": onward}
    written(tmp_path / "h", {"kind": "hops", "retriever": "../b", "hops": hops})
    stored = HopOptions(**stored_options(tmp_path / "h")["hops"])
    assert stored == HopOptions("ranked", onward=tuple(onward))


def test_given_options_count_where_they_are_not_as_usual() -> None:
    stored = SearchOptions(beams=40, rescore=5)
    assert merged(stored, None) is stored
    assert merged(None, SearchOptions(beams=3)) == SearchOptions(beams=3)
    assert merged(stored, SearchOptions(mode="full")) == SearchOptions(beams=40, rescore=5, mode="full")
    assert merged(stored, SearchOptions(beams=3)) == SearchOptions(beams=3, rescore=5)
