"""How explanations are shown: the picture's layout, escaping, files and the command."""

import json
import re
import shutil
from pathlib import Path

import pytest
from failing import fails
from small_data import small_retriever, write_small

from grls.cli import main
from grls.data.types import Query
from grls.explain.explain import Explainer
from grls.explain.page import drawn, facts, html_page
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


def tree() -> Tree:
    nodes = (
        Node(1, -1, "▁a<b", -1.0, "kept", True),
        Node(1, -1, "c&\x00", -2.0, "kept", False),
        Node(2, 1, '"', -2.5, "finished", False, ("p<1>",), 1),
        Node(2, 0, "d", -3.0, "lost", True),
        *(Node(2, 1, f"t{n}", -4.0 - n, "beaten", False) for n in range(20)),
    )
    return Tree(nodes, (30, 40))


def test_a_tree_is_told_to_the_script_that_draws_it() -> None:
    first, second = drawn(tree())["steps"]
    assert (first["candidates"], second["candidates"]) == (30, 40)
    assert first["beams"] == [{"parent": None}]
    assert [(one["token"], one["fate"], one["gold"]) for one in first["tokens"]] == [
        ("▁a<b", "kept", True), ("c&\x00", "kept", False),
    ]  # fmt: skip
    best, lost, *beaten = second["tokens"]
    assert [second["beams"][one["beam"]]["parent"] for one in (best, lost, *beaten)] == [1, 0, *[1] * 20]
    assert (best["fate"], best["constrained"]) == ("finished", -0.5)
    assert best["tip"] == 'c&\x00 ": -2.5000 nats, finished as #1 p<1>'
    assert (lost["fate"], lost["gold"], lost["constrained"]) == ("pruned", True, -2.0)
    assert {one["fate"] for one in beaten} == {"beaten"}


@pytest.mark.parametrize("width", [1300, 400])
def test_the_page_draws_the_tree_in_a_browser(width: int, data: Path, tmp_path: Path) -> None:
    """The policy of the page lets its own script run; texts come as texts."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("needs Chromium")
    (e,) = Explainer(small_retriever(data), 2).explain(Query("q", "is the lynx kind ?"), ["lynx-calm"])
    (tmp_path / "why.html").write_text(html_page([e._replace(tree=tree())]))
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto((tmp_path / "why.html").as_uri())
        texts = page.locator(".tree-node > text:not(.tree-flag)").all_text_contents()
        assert texts == ["␣a<b", "c&␀", '"', *(f"t{n}" for n in range(20)), "d"]
        assert page.locator(".tree-node.chosen").count() == 2
        assert page.locator(".tree-node.chosen.pruned text").all_text_contents() == ["d"]
        assert page.locator(".tree-lines path").count() == 24
        assert "dashed: it was dropped" in page.text_content(".legend")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert faults == []
        browser.close()


def test_the_page_escapes_and_is_self_contained(data: Path) -> None:
    query = Query("q<1>", "is <b>the</b> otter calm & kind ?")
    e = Explainer(small_retriever(data), 3).explain(query, ["otter-calm"])[0]
    html = html_page([e])
    assert "is &lt;b&gt;the&lt;/b&gt; otter calm &amp; kind ?" in html
    assert "<b>the</b>" not in html
    assert not re.search(r"<script (?!>)|<link|src=|url\(|@import", html)
    assert html.count("<script>") == 1
    assert 'class="scroll"' in html
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" in html
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
    assert names == ["why.html", "why.json"]
    said = json.loads((tmp_path / "why.json").read_text())
    assert [(e["gold"], e["evidence"], e["hop"]) for e in said] == [
        ("lynx-calm", [], 1),
        ("r0", ["lynx-calm"], 2),
    ]
    assert said[0]["done"] is None
    assert said[1]["done"] is not None
    assert all(e["why"] in out and e["judgement"]["true_rank"] for e in said)
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
