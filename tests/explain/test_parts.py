"""The parts of a report: no label twice, no passage called gold that is merely asked about."""

from pathlib import Path

import pytest
from composite_specs import COMPOSITES, write_kinds, written

import grls
from grls.data.types import Query
from grls.explain.text import Part, facts_part, parts_text, query_line, text_part, with_id


def test_an_id_is_not_said_twice() -> None:
    assert with_id("otter", "otter: it is calm") == "otter: it is calm"
    assert with_id("DONE", "DONE") == "DONE"
    assert with_id("otter", "otters: they swim") == "otter: otters: they swim"
    assert query_line(Query("query", "where ?")) == "where ?"
    assert query_line(Query("where ?", "where ?")) == "where ?"
    assert query_line(Query("q1", "where ?")) == "q1: where ?"


def test_parts_in_a_terminal() -> None:
    table = Part("table", (("rank", "id"), ("1", "a\x90")), (1,), {1: "32"})
    parts = [facts_part(("query", "where ?")), text_part("One.", "Two."), table]
    plain = parts_text(parts)
    assert plain == "query    where ?\n\nOne.\nTwo.\n\nrank  id\n   1  a\\x90"
    assert parts_text(parts, colour=True) == plain.replace("   1  a\\x90", "\x1b[1;32m   1  a\\x90\x1b[0m")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = write_kinds(tmp_path_factory.mktemp("parts"))
    for name in ("hybrid", "hops", "fusion"):
        written(place / name, COMPOSITES[name])
    return place


@pytest.mark.parametrize("name", ["bm25", "dense", "generative", "hybrid", "hops", "fusion"])
def test_a_report_of_each_kind(kinds: Path, name: str) -> None:
    report = str(grls.load(kinds / name, device="cpu").explain("is the otter calm ?", "otter-calm"))
    first, second = report.splitlines()[:2]
    assert first == "query    is the otter calm ?"
    assert second == "passage  otter-calm: the otter is calm ."
    assert "gold" not in report
    assert "bm25, bm25" not in report
