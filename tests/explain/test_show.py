"""How explanations are shown: the picture's layout, escaping, files and the command."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from failing import fails
from hypothesis import given
from hypothesis import strategies as st
from small_data import small_retriever, write_small

from grls.cli import main
from grls.data.types import Query
from grls.explain.explain import Explainer
from grls.explain.page import facts, html_page
from grls.explain.picture import draw_tree, spread_places
from grls.explain.text import format_explanation
from grls.explain.tree import Node, Tree
from grls.retrieve.spec import write_spec


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("show") / "data")


@pytest.fixture(scope="module")
def retriever(data: Path) -> Path:
    folder = data.parent / "retriever"
    small_retriever(data).save_pretrained(folder)
    return folder


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_boxes_keep_their_distance_and_move_as_little_as_they_can(wanted: list[int]) -> None:
    places = spread_places(wanted, 2.0)
    assert all(b - a >= 2.0 - 1e-9 for a, b in pairwise(places))
    cost = sum((p - w) ** 2 for p, w in zip(places, wanted, strict=True))
    rng = np.random.default_rng(0)
    for _ in range(30):  # no other legal layout is nearer
        moved = np.array(places) + rng.normal(0, 0.5, len(places))
        for n in range(1, len(moved)):
            moved[n] = max(moved[n], moved[n - 1] + 2.0)
        assert ((moved - wanted) ** 2).sum() >= cost - 1e-9


def test_boxes_that_fit_stay_where_they_are_wanted() -> None:
    assert spread_places([0.0, 5.0, 10.0], 2.0) == [0.0, 5.0, 10.0]
    assert spread_places([1.0, 1.0], 2.0) == [0.0, 2.0]
    assert spread_places([], 2.0) == []


def tree() -> Tree:
    nodes = (
        Node(1, -1, "▁a<b", -1.0, "kept", True),
        Node(1, -1, "c&\x00", -2.0, "kept", False),
        Node(2, 1, '"', -2.5, "finished", False, ("p<1>",), 1),
        Node(2, 0, "d", -3.0, "lost", True),
        *(Node(2, 1, f"t{n}", -4.0 - n, "beaten", False) for n in range(20)),
    )
    return Tree(nodes, (30, 40))


def test_the_picture_is_xml_with_every_text_escaped() -> None:
    svg = draw_tree(tree(), 'title "<&"', most=6)
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == 'title "<&"'
    texts = ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("}text")]
    assert "★ ▁a<b" in texts
    assert any(t.startswith("#1 p<1>") for t in texts)
    assert "step 2 (16 not drawn)" in texts
    kinds = [e.get("class") for e in root.iter() if e.tag.endswith("}g") for e in e if e.tag.endswith("rect")]
    assert sorted(kinds) == sorted(["kept gold", "kept", "finished", "lost gold", *["beaten"] * 4])


def test_lines_do_not_cross() -> None:
    svg = draw_tree(tree(), "t", most=40)
    lines = re.findall(r'<path [^>]*d="M([\d.]+) ([\d.]+) C.*? ([\d.]+) ([\d.]+)"', svg)
    second = sorted((float(y), float(start)) for x, start, end, y in lines if float(x) > 60)
    assert len(second) == 22
    assert [start for _, start in second] == sorted(start for _, start in second)


def test_the_page_escapes_and_is_self_contained(data: Path) -> None:
    query = Query("q<1>", "is <b>the</b> otter calm & kind ?")
    e = Explainer(small_retriever(data), 3).explain(query, ["otter-calm"])[0]
    html = html_page([e], [draw_tree(e.tree, "t")])
    assert "is &lt;b&gt;the&lt;/b&gt; otter calm &amp; kind ?" in html
    assert "<b>the</b>" not in html
    assert not re.search(r"<script|<link|src=|url\(|@import", html)
    assert 'class="scroll"' in html
    assert "default-src 'none'" in html
    assert json.loads(json.dumps(facts(e), allow_nan=False))["verdict"] == e.verdict


def test_colour_only_where_asked(data: Path) -> None:
    e = Explainer(small_retriever(data), 3).explain(Query("q", "is the otter calm ?"), ["otter-calm"])[0]
    plain, coloured = format_explanation(e), format_explanation(e, colour=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    assert coloured != plain


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["explain", *map(str, arguments), "--device=cpu"]) == 0
    return capsys.readouterr().out


def test_the_command_takes_gold_from_the_data_and_writes_files(
    data: Path, retriever: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(
        capsys, "q-lynx-kind", f"--data={data}", f"--retriever={retriever}", f"--output={tmp_path / 'why'}",
        "--hops.steps=dynamic", "--k=2", "--case.exhaustive=true",
    )  # fmt: skip
    assert "\x1b" not in out
    names = sorted(f.name for f in tmp_path.iterdir())
    assert names == ["why-2.svg", "why.html", "why.json", "why.svg"]
    said = json.loads((tmp_path / "why.json").read_text())
    assert [(e["gold"], e["evidence"], e["hop"]) for e in said] == [
        ("lynx-calm", [], 1),
        ("r0", ["lynx-calm"], 2),
    ]
    assert said[0]["done"] is None
    assert said[1]["done"] is not None
    assert all(e["why"] in out and e["judgement"]["true_rank"] for e in said)
    for picture in tmp_path.glob("*.svg"):
        ElementTree.fromstring(picture.read_text())
    hop = run(capsys, "q-lynx-kind", f"--data={data}", f"--retriever={retriever}", "--case.hop=2")
    assert "passage  r0:" in hop
    assert "after lynx-calm" in hop


def test_the_command_takes_free_text_and_evidence(
    retriever: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(
        capsys,
        "is the lynx kind ?",
        f"--retriever={retriever}",
        "--case.gold=r0,r1",
        "--case.evidence=lynx-calm",
    )
    assert out.count("hop      2, after lynx-calm") == 2
    assert "passage  r1:" in out


def test_text_beside_data_is_said(
    data: Path, retriever: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    ours = (f"--retriever={retriever}", f"--data={data}")
    out = run(capsys, "is the lynx kind ?", *ours, "--case.gold=r0")
    assert "query    is the lynx kind ?" in out
    assert "no query has the id 'is the lynx kind ?', so it is taken as the text" in caplog.text
    caplog.clear()
    out = run(capsys, "q-otter-calm", *ours, "--case.gold=r0", "--precision=bfloat16")  # a train query
    assert "query    q-otter-calm: is the otter calm ?" in out
    # Some processors emulate bfloat16, which is told.
    assert not [record for record in caplog.records if record.name != "grls.models.precision"]


def test_precision_and_bias_reach_the_search(
    data: Path, retriever: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = (
        "q-lynx-kind",
        f"--data={data}",
        f"--retriever={retriever}",
        "--hops.steps=dynamic",
        "--case.hop=2",
    )
    assert "DONE's score +30.00" in (first := run(capsys, *known, "--hops.done_bias=30"))
    assert re.search(r"(?m)^ +1  DONE +2\d\.", first)
    plain, coarse = run(capsys, *known), run(capsys, *known, "--precision=bfloat16")
    assert "DONE's score" not in plain
    assert plain != coarse


def test_all_counts_a_split(
    data: Path, retriever: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(
        capsys, "all", f"--data={data}", f"--retriever={retriever}", f"--output={tmp_path / 's'}", "--k=2",
        "--search.beams=2",
    )  # fmt: skip
    assert "2 queries, 4 gold passages; 2 beams, k 2" in out
    assert sum(json.loads((tmp_path / "s.json").read_text())["verdicts"].values()) == 4


def test_priors_and_hops_of_the_folder_are_explained(
    data: Path, retriever: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"generator": str(retriever), "priors": [{"retriever": "bm25", "weight": 3.0}]}
    write_spec(tmp_path / "hybrid", "hybrid", named)
    write_spec(
        tmp_path / "hops",
        "hops",
        {"retriever": "../hybrid", "hops": {"steps": "dynamic", "max": 3, "done_bias": 2.0, "branch": 2}},
    )
    asked = ("q-lynx-kind", f"--data={data}")
    plain = run(capsys, *asked, f"--retriever={retriever}")
    hybrid = run(capsys, *asked, f"--retriever={tmp_path / 'hybrid'}")
    assert "renormalized scores, " in plain
    assert "renormalized scores with priors, " in hybrid
    stepped = run(capsys, *asked, f"--retriever={tmp_path / 'hops'}")
    assert "k 2, renormalized scores with priors, early stop, DONE's score +2.00" in stepped
    assert "after lynx-calm" in stepped


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    return fails(capsys, "explain", *arguments, "--device=cpu")


def test_every_wrong_call_says_what_to_do(
    data: Path, retriever: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = f"--retriever={retriever}"
    assert "give --case.gold ID" in refused(capsys, "text", ours)
    assert "passage id 'none' is not in the retriever's corpus" in refused(
        capsys, "text", ours, "--case.gold=none"
    )
    elsewhere = shutil.copytree(retriever, tmp_path / "a" / "b" / "c")  # no data set is beside it
    assert "give --data DIR" in refused(capsys, "all", f"--retriever={elsewhere}")
    for option in ("--case.hop=1", "--case.gold=r0", "--case.evidence=r0"):
        assert "are of one query" in refused(capsys, "all", ours, f"--data={data}", option)
    assert "--limit must be at least 1" in refused(capsys, "all", ours, f"--data={data}", "--limit=-1")
    known = ("q-lynx-kind", ours, f"--data={data}")
    assert "--case.hop 4: the query has 2 gold passages" in refused(capsys, *known, "--case.hop=4")
    assert "not both" in refused(capsys, *known, "--case.hop=1", "--case.evidence=r0")
    assert "'r1' is not in the gold order" in refused(capsys, *known, "--case.gold=r1", "--hops.steps=fixed")
    unknown = refused(capsys, "q-lynx-kimd", *known[1:], "--case.gold=r0")
    assert f"{data / 'queries.jsonl'}: no query has the id 'q-lynx-kimd'" in unknown
    assert "did you mean 'q-lynx-kind'?" in unknown
    assert "did you mean" not in refused(capsys, "99999", *known[1:], "--case.gold=r0")
    assert "needs no --data, or holds a space" in refused(capsys, "99999", *known[1:], "--case.gold=r0")
    other = refused(capsys, *known, "--split=dev")
    assert f"{data / 'qrels' / 'dev.tsv'}: --split dev does not judge query 'q-lynx-kind'" in other
    assert "--split test does: name it, or give --case.gold ID" in other
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "queries.jsonl").write_bytes((data / "queries.jsonl").read_bytes())
    assert "no split does: make qrels" in refused(capsys, "q-lynx-kind", ours, f"--data={bare}")
    assert "only --hops.steps dynamic writes" in refused(
        capsys, *known, "--hops.done_bias=1", "--hops.steps=fixed"
    )
