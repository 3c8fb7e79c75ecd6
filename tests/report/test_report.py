"""Reports: which runs stand on a page, tables by hand, and the page as written."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from failing import fails, raises, refuses
from report_helpers import GOOD, PASSAGES, POOR, QUERIES, dataset, page_text, write
from small_data import passages, queries

from grls.cli import main
from grls.data.dataset import read_queries, write_dataset
from grls.data.types import IN_CHAINS
from grls.errors import DataError, GrlsError
from grls.evaluation.misses import KINDS
from grls.evaluation.significance import compare
from grls.report.blocks import (
    Cell,
    Column,
    Page,
    Section,
    Subsection,
    Table,
    two_digits,
    value_table,
)
from grls.report.page import (
    answer_blocks,
    build_page,
    overlap,
    quality_by_time,
    render_html,
    run_table,
    section_tables,
    significance_table,
    similarity_tables,
)
from grls.report.runs import load_groups
from grls.report.systems import ExperimentTable, SystemRun, compare_systems
from grls.runs.portions import fingerprint_queries


@pytest.fixture
def data(tmp_path):
    return dataset(tmp_path / "small")


def test_manifests_name_data_sets_which_are_groups_steps_and_run(data, tmp_path):
    one = write(tmp_path / "one", data, GOOD, "ours", steps="fixed")
    two = write(tmp_path / "two", data, POOR, "theirs", "biencoder", "single")
    (group,) = load_groups([one, two])
    assert (group.name, group.split) == ("small", "test")
    assert all(run.report["seen_unseen"]["seen_queries"] == 1 for run in group.runs)  # f1 is gold of training
    assert [(e.label, e.system, e.steps) for e in group.runs] == [
        ("theirs", "biencoder", "single"),  # bi-encoders come first
        ("ours", "generator", "fixed"),
    ]
    other = dataset(tmp_path / "other")
    files = [write(tmp_path / f"run{n}", folder, GOOD) for n, folder in enumerate((other, data, other))]
    assert [(g.name, len(g.runs)) for g in load_groups(files)] == [("other", 2), ("small", 1)]


def test_a_data_set_that_is_not_known_or_has_moved_is_named(data, tmp_path):
    chains = write(tmp_path / "chains", data, GOOD, manifest=False)
    ranking = write(tmp_path / "ranking", data, GOOD, steps="single", manifest=False)
    (group,) = load_groups([chains, ranking], str(data))
    assert [(e.label, e.system, e.steps) for e in group.runs] == [
        ("chains", "", "dynamic"), ("ranking", "", None),
    ]  # fmt: skip
    for more in ({"data": str(tmp_path / "gone" / "small")}, {"data": "", "corpus": "", "queries": ""}):
        (group,) = load_groups([write(tmp_path / "run", data, GOOD, **more)], str(data))
        assert (group.name, group.runs[0].label) == ("small", "run")


REFUSED = (
    ("missing.trec", {}, "missing.trec: no such file"),
    ("one.jsonl one.trec", {}, "one.jsonl and .*one.trec are the same run"),
    ("bare.jsonl", {}, "bare.jsonl: which data set .* no manifest; give data=FOLDER"),
    ("unsaid.jsonl", {}, "which data set"),
    ("moved.jsonl", {}, "names '.*gone/small', which is no folder here; give data=FOLDER"),
    ("moved.jsonl", {"data": "nowhere"}, "nowhere: no such file; a corpus is"),
    ("bare.jsonl", {"data": "small", "split": "dev"}, "qrels/dev.tsv: no such file"),
    ("one.jsonl bare.jsonl", {"data": "y/small"}, "two data sets of one name"),
    ("one.jsonl wider.jsonl", {}, "wider.jsonl was made with another corpus than .*small holds"),
    ("misplaced.jsonl", {}, "misplaced.jsonl was made with another corpus than .*x/small holds"),
    ("one.jsonl asked.jsonl", {}, "asked.jsonl was made with other queries than"),
    ("train.jsonl one.jsonl", {}, "train.jsonl was made with other queries than .*small, split train, holds"),
    ("one.jsonl", {"split": "train"}, "one.jsonl is of the split test, and split asks for train"),
)


def test_what_does_not_fit_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changed = dataset(tmp_path / "x" / "small", [*PASSAGES, PASSAGES[0]._replace(id="new")])
    dataset(tmp_path / "y" / "small")
    for name, more in {
        "one": {}, "bare": {"manifest": False}, "unsaid": {"data": "", "corpus": "", "queries": ""},
        "moved": {"data": "gone/small"}, "misplaced": {"data": str(changed)}, "asked": {"queries": "0" * 64},
        "train": {"split": "train"},
    }.items():  # fmt: skip
        write(tmp_path / name, data, GOOD, **more)
    write(tmp_path / "wider", changed, GOOD)
    for files, options, says in REFUSED:
        raises(GrlsError, says, load_groups, files.split(), **options)


def test_ids_and_texts_of_other_data_are_refused(data, tmp_path):
    file = tmp_path / "old.jsonl"
    write(tmp_path / "old", data, GOOD, manifest=False)
    text = file.read_text()
    for old, new, message in (
        ('"f1"', '"f9"', "old.jsonl: 'f9' (1 in all) are no passages"),
        ('"query_id": "q1"', '"query_id": "q9"', "old.jsonl: the query id 'q9'"),
        ("anna is kind . why", "anna is cold . why", "old.jsonl, line 1: query 'q1' is 'anna is cold"),
    ):
        file.write_text(text.replace(old, new))
        raises(DataError, re.escape(message), load_groups, [str(file)], str(data))
    file.write_text("")
    raises(DataError, r"old.jsonl: the run has no line", load_groups, [str(file)], str(data))


def test_equal_names_are_told_apart_by_file(data, tmp_path):
    files = [write(tmp_path / n, data, GOOD, name) for n, name in (("a", "g"), ("b", "g"), ("c", "h"))]
    assert [e.label for e in load_groups(files)[0].runs] == ["g (a)", "g (b)", "h"]
    (tmp_path / "x").mkdir()
    same = [files[0], write(tmp_path / "x" / "a", data, GOOD, "g")]
    assert [e.label for e in load_groups(same)[0].runs] == [f"g ({file})" for file in same]


def test_a_run_over_all_queries_stands_beside_one_of_a_split(data, tmp_path):
    everything = fingerprint_queries(read_queries(data))
    wide = write(tmp_path / "wide", data, GOOD, split=None, queries=everything)
    (group,) = load_groups([wide, write(tmp_path / "narrow", data, GOOD, "narrow")])
    assert (group.split, [*group.runs[0].judged.qrels]) == ("test", ["q1", "q2"])
    assert json.loads((tmp_path / "wide.info.json").read_text())["split"] is None
    assert len(QUERIES) == 3


def measured(*files, data=None, ks=(1, 3)):
    return load_groups(list(files), data, ks=ks)


def lines(table):
    return [[cell.text + "*" * cell.strong for cell in row] for row in table.rows]


def test_the_best_is_marked_by_what_is_printed():
    columns = [Column("high"), Column("low", best="low"), Column("n", "count", ""), Column("words", "text")]
    rows = [
        (("a", "x"), [0.50001, 0.1, 1200, "one"]), (("b", "x"), [0.50002, None, 3, ""]),
        (("c", "y"), [0.1, 0.2, 4, None]),
    ]  # fmt: skip
    assert lines(value_table("t", "", ("run", "kind"), columns, rows)) == [
        ["a", "x", "50.0*", "10.0*", "1,200", "one"], ["b", "x", "50.0*", "–", "3", "–"],
        ["c", "y", "10.0", "20.0", "4", "–"],
    ]  # fmt: skip
    none = value_table("t", "", ("run",), columns[1:2], [(("a",), [0.0]), (("b",), [0.2])])
    assert lines(none) == [["a", "0.0"], ["b", "20.0"]]  # none of a kind is no best
    within = lines(
        value_table("t", "", ("run", "kind"), columns, [*rows, (("d", "y"), [0.2, 0.2, 1, "e"])], within=1)
    )
    assert [row[2:4] for row in within] == [
        ["50.0", "10.0"], ["50.0", "–"], ["10.0", "20.0"], ["20.0*", "20.0"],
    ]  # fmt: skip


def sections(group):
    """Section of the evaluation -> its table."""
    return {table.name.removesuffix(f"-{group.name}"): table for table in section_tables(group)}


def test_recall_of_every_run(data, tmp_path):
    good, poor = write(tmp_path / "good", data, GOOD, "good"), write(tmp_path / "poor", data, POOR, "poor")
    # good finds all; poor finds 2 of 3 and 1 of 2, first f1 and then nothing of q2 at rank 1
    (group,) = measured(poor, good)
    assert lines(sections(group)["sequence-recall"]) == [
        ["poor", "generator", "dynamic", "16.7", "58.3"],
        ["good", "generator", "dynamic", "41.7*", "100.0*"],
    ]


def test_fixed_and_dynamic_chains_are_sets(data, tmp_path):
    dynamic = write(tmp_path / "a", data, POOR, "until done")
    fixed = write(tmp_path / "b", data, GOOD, "three hops", steps="fixed")
    single = write(tmp_path / "c", data, GOOD, "top", steps="single")
    (group,) = measured(dynamic, fixed, single)
    found = sections(group)["set"]
    assert found.heads[3:] == ("set F1, known number", "set precision", "set recall", "set F1")
    assert [row[:1] + row[3:] for row in lines(found)] == [
        ["top", "100.0*", "–", "–", "–"],
        ["three hops", "100.0*", "100.0*", "100.0*", "100.0*"],
        ["until done", "65.0", "75.0", "58.3", "65.0"],
    ]
    assert lines(sections(group)["done-missing"]) == [["until done", "generator", "dynamic", "0.0"]]
    write(tmp_path / "a", data, GOOD, "trec")
    (row,) = lines(sections(measured(str(tmp_path / "a.trec"))[0])["set"])
    assert row == ["trec", "generator", "dynamic", "100.0", "100.0", "100.0", "100.0"]


def test_pooled_chains_are_no_chain(data, tmp_path):
    pool = write(tmp_path / "b", data, GOOD, "pool", steps="fixed", options={"k": 3, "pool": True})
    (group,) = measured(pool)
    assert lines(sections(group)["set"]) == [["pool", "generator", "fixed", "100.0"]]
    assert group.runs[0].chains is None


def test_values_beyond_the_cutoff_are_in_no_table(data, tmp_path):
    short = write(tmp_path / "a", data, POOR, "short", steps="single", options={"k": 2})
    deep = write(tmp_path / "b", data, POOR, "deep", steps="single", options={"k": 3})
    (group,) = measured(short, deep)
    table = sections(group)["seen-unseen"]
    seen = {row[0].text: dict(zip(table.heads, (c.text for c in row), strict=True)) for row in table.rows}
    assert (seen["short"]["seen R@1"], seen["short"]["seen R@3"]) == (seen["deep"]["seen R@1"], "–")
    assert seen["deep"]["seen R@3"] != "–"
    text = render_html(build_page([group], 3))
    assert text.count("was cut off before k has no value at k") == 1
    assert significance_table(group, "R@3", lambda run: group.values(run, "R@3")) is None
    assert significance_table(group, "R@2", lambda run: group.values(run, "R@2")) is not None
    alike = [[[cell.text for cell in row[1:]] for row in similarity_tables(group, k)[0].rows] for k in (2, 3)]
    assert alike == [[["1.00", "1.00"]] * 2, [["–", "–"], ["–", "1.00"]]]


def test_any_section_of_the_evaluation_becomes_a_table(data, tmp_path):
    groups = measured(
        write(tmp_path / "a", data, GOOD, "good"), write(tmp_path / "b", data, POOR, "poor", steps="single")
    )
    (group,) = groups
    group.runs[1].report["new_thing"] = {"new@2": 0.25, "queries": 2, "none": None}
    for run, missed in zip(group.runs, (0.75, 0.25), strict=True):
        run.report["misses"] = dict.fromkeys(KINDS, missed)
    tables = sections(group)
    assert [row[3:] for row in lines(tables["misses"])] == [["75.0"] * 4, ["25.0*"] * 4]  # fewer are better
    assert lines(tables["new-thing"]) == [["good", "generator", "dynamic", "25.0", "2", "–"]]
    assert tables["new-thing"].heads[3:] == ("new@2", "queries", "none")
    assert {"seen-unseen", "set", "graph"} <= tables.keys()
    assert lines(tables["graph"]) == [
        ["good", "generator", "dynamic", "100.0", "0.0", "0.0", "0.0", "0.0", "2"]
    ]


def test_what_was_run_tells_the_manifests_and_who_did_not_answer(data, tmp_path, caplog):
    known = write(
        tmp_path / "a", data, {"q1": ["f1"]}, "known", stages=("memorise", "retrieve"), members=("x", "y")
    )
    plain = write(tmp_path / "b", data, GOOD, manifest=False)
    table = run_table(measured(known, plain, data=str(data)))
    found = [dict(zip(table.heads, (cell.text for cell in row), strict=True)) for row in table.rows]
    assert found[0] == {
        "run": "known", "system": "generator", "steps": "dynamic", "data set": "small", "split": "test",
        "stages": "memorise + retrieve", "members": "x + y", "score mode": "renormalized", "seconds": "4.0",
        "queries/s": "0.5", "judged": "2", "unanswered": "1", "not judged": "0", "options": "k=3",
        "file": known,
    }  # fmt: skip
    assert f"{known}: 1 of 2 judged queries have no hit; they score 0." in caplog.text
    assert (found[1]["run"], found[1]["options"], found[1]["seconds"]) == ("b", "no manifest", "–")


def test_overlap_by_hand_and_the_similarity_that_is_printed(data, tmp_path):
    first, second = [["a", "b"], ["c"], []], [["b", "d"], ["c"], []]
    assert overlap(first, second, 2, None) == pytest.approx(
        (1 / 3 + 1) / 2
    )  # the third has nothing to compare
    assert overlap(first, second, 1, None) == pytest.approx((0 + 1) / 2)
    assert overlap(first, second, 2, [["b"], ["x"], ["c"]]) == 1.0
    assert overlap(first, second, 2, [["a", "b"], ["x"], ["c"]]) == 0.5
    assert overlap([[]], [[]], 2, None) is None
    (group,) = measured(write(tmp_path / "a", data, GOOD, "good"), write(tmp_path / "b", data, POOR, "poor"))
    every, correct = similarity_tables(group, 3)
    assert lines(every) == [["1. good", "1.00", "0.50"], ["2. poor", "0.50", "1.00"]]  # 2 of 3, 1 of 3
    assert lines(correct) == [["1. good", "1.00", "0.58"], ["2. poor", "0.58", "1.00"]]  # 2 of 3, 1 of 2
    assert every.heat
    assert every.rows[0][2] == Cell("0.50", shade=pytest.approx(0.5))


def test_significance_against_the_best_or_a_baseline(data, tmp_path):
    files = [write(tmp_path / name, data, found, name) for name, found in (("good", GOOD), ("poor", POOR))]
    files.append(write(tmp_path / "other", data, POOR, "other", steps="single"))
    (group,) = measured(*files)
    table = significance_table(group, "R@3", lambda run: group.values(run, "R@3"))
    rows = {row[0]: row[1:] for row in lines(table)}
    assert "against good (the best), 2 queries" in table.caption
    assert rows["good"] == ["100.0", "reference", "–", "–", "–"]
    # the differences are -1/3 and -1/2: four swaps, two as far out; Holm doubles p, at most to 1
    assert rows["poor"] == ["58.3", "-41.7", "-50.0 to -33.3", "0.500", "1.000"]
    named = significance_table(group, "set F1", group.set_f1s, "poor")
    assert "against poor (the baseline asked for)" in named.caption
    assert [row[0] for row in lines(named)] == ["good", "poor"]  # single-step runs have no chains
    assert significance_table(group, "set F1", lambda run: None) is None


def test_averages_over_few_queries_stand_in_parentheses(data, tmp_path):
    (group,) = measured(write(tmp_path / "a", data, GOOD, "good"))
    table = sections(group)["seen-unseen"]
    assert lines(table)[0][3:6] == ["(100.0)", "(100.0)", "1"]
    assert "fewer than 30 queries" in table.note


def test_rankings_by_hops_are_called_so_and_stand_behind_single_steps(data, tmp_path):
    ranked = write(tmp_path / "hops", data, GOOD, "hops", "sparse", "ranked", score_mode=IN_CHAINS)
    plain = write(tmp_path / "plain", data, POOR, "plain", "biencoder", "single")
    (group,) = measured(ranked, plain)
    rows = lines(sections(group)["sequence-recall"])
    assert [row[:3] for row in rows] == [["plain", "bi-encoder", "single"], ["hops", "sparse", "ranked"]]
    assert [run.label for run in group.runs] == ["plain", "hops"]
    assert [run.chains for run in group.runs] == [None, None]


def test_each_type_of_questions_has_a_row_of_one_table(tmp_path: Path) -> None:
    asked = [
        query._replace(metadata=json.dumps({"type": "two hops" if len(query.evidence) > 1 else "single"}))
        for query in queries()
    ]
    qrels = {"test": {query.id: dict.fromkeys(query.evidence, 1) for query in asked}}
    write_dataset(tmp_path / "data", passages(), asked, qrels)
    run = tmp_path / "run"
    assert main(["retrieve", "bm25", f"--data={tmp_path / 'data'}", f"--output={run}"]) == 0
    assert main(["experiment", f"{run}.jsonl", f"--output={tmp_path / 'page'}"]) == 0
    page = page_text(tmp_path / "page.html")
    assert page.count("Scores by the type of a question") == 1
    rows = [
        line for line in page.splitlines() if "| single | single |" in line or "| single | two hops |" in line
    ]
    assert len(rows) == 2
    assert all("(" in row for row in rows)  # few questions


EVIL = "<script>alert('x')</script> $\\frac{1}$ | [a](b) *c*"


class Document(HTMLParser):
    """Tags with their attributes; text outside styles; refuses a tag that is closed out of turn."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.texts = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def named(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("runs")
    small, other = dataset(tmp_path / "small"), dataset(tmp_path / "other")
    return [
        write(tmp_path / "a", small, GOOD, "good", stages=("memorise", "retrieve")),
        write(tmp_path / "b", small, POOR, EVIL, steps="fixed"),
        write(tmp_path / "c", small, {"q1": ["f1"]}, "half", "biencoder", "single"),
        write(tmp_path / "d", other, POOR, "good"),
    ]


def page_of(files, **options):
    return build_page(load_groups(files, ks=(1, 3)), 3, **options)


@pytest.fixture(scope="module")
def page(files):
    """With a picture whose names are hostile."""
    picture = quality_by_time({EVIL: (0.01, 0.5), "b": (1.0, 0.25)}, "b", "R@5 (%)")
    return page_of(files)._replace(answer=(picture,))


def test_the_page_has_every_section_of_every_data_set(page, files):
    assert [section.title for section in page.sections] == ["small, test", "other, test", "What was run"]
    assert [part.title for part in page.sections[0].parts] == [
        "Metrics", "Significance", "Similarity of predictions",
    ]  # fmt: skip
    assert "4 runs on small (test), other (test)." in page.summary
    (alone,) = [page_of(files[3:])]
    assert [section.title for section in alone.sections] == ["other, test", "What was run"]
    assert not {"Significance", "Similarity of predictions"} & {
        part.title for part in alone.sections[0].parts
    }


def test_html_is_well_formed_and_asks_for_nothing(page):
    html = render_html(page)
    document = Document(html)
    assert not document.named("script")
    assert not document.named("link")
    assert not document.named("img")
    for _, attributes in document.tags:
        for name, value in attributes.items():
            if name in ("href", "src", "xlink:href"):
                assert value.startswith("#")
            assert not name.startswith("on")
    assert "url(http" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html
    ids = [attributes["id"] for _, attributes in document.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    labels = [a["aria-labelledby"] for _, a in document.tags if "aria-labelledby" in a]
    assert {*labels, *(a["href"][1:] for a in document.named("a"))} <= set(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(ids)


def test_html_is_accessible(page):
    document = Document(render_html(page))
    assert document.named("html")[0]["lang"] == "en"
    assert all(attributes.get("scope") in ("col", "row") for attributes in document.named("th"))
    count = len(document.named("table"))
    assert len(document.named("caption")) == count > 10
    regions = [a for a in document.named("div") if a.get("class") == "scroll"]
    assert len(regions) == count
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in regions)
    assert all(a["aria-hidden"] == "true" for a in document.named("svg"))
    assert (
        len(document.named("figcaption")) == len(document.named("figure")) == len(document.named("svg")) == 1
    )


def test_words_stand_at_the_left():
    rows = (
        ("a", "12.5 ± 0.3", "+1.2 to +3.4", "58 s", "2 GB are needed, and 1 is there", "(50.0)†", "< 0.001"),
    )
    table = Table(
        "t", "", tuple("abcdefg"), 1, tuple(tuple(map(Cell, row)) for row in (*rows, ("b", *["–"] * 6)))
    )
    assert table.left == [True, False, False, False, True, False, False]
    html = render_html(Page("t", "", (Section("s", (Subsection("p", (table,)),)),)))
    assert '<th scope="col" class="stub">e</th>' in html
    words = Cell("1. " + "of a passage " * 20)  # looking for a number in it took minutes
    assert Table("t", "", ("a", "b"), 1, ((Cell("x"), words),)).left == [True, True]
    assert '<td data-head="e" class="words long">2 GB' in html
    assert "<td>12.5" in html


def test_names_and_passages_are_escaped_in_html_and_pictures(page, tmp_path):
    html = render_html(page)
    assert EVIL in " ".join(Document(html).texts).replace("\u00a0", " ")
    assert "<script" not in html
    pictures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    for svg in pictures:
        assert not list(ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}script"))
    assert len(pictures) == 1


def test_a_query_without_an_answer_is_said(page):
    said = [block.text for block in page.sections[-1].parts[0].blocks if hasattr(block, "warning")]
    assert said == ["half on small: no passage for 1 of 2 queries; they score 0."]
    assert said[0] in render_html(page)


def test_the_command_writes_and_refuses(files, tmp_path, capsys):
    page = tmp_path / "page"
    assert main(["experiment", *files[2:], f"--output={page}", "--measures=R@3 R@1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{page}.html"
    text = page_text(page.with_suffix(".html"))
    assert "halffinds most of 1 system" in text
    (row, _) = re.findall(r"^\| half \| .*", text, re.MULTILINE)[:2]
    assert row.startswith("| half | 16.7 | 16.7 |")  # the table of systems comes first
    message = fails(capsys, "experiment", "--output", tmp_path / "x", tmp_path / "none.trec")
    assert message.startswith(f"error: {tmp_path}/none.trec: no such file")
    assert not list(tmp_path.glob("x*"))
    assert "systems" in refuses(capsys, "experiment", f"--output={tmp_path / 'x'}")


def test_measures_asked_for_have_columns_and_tests(files, tmp_path):
    out = tmp_path / "page"
    measures = ["--measures", "R@3 RR P@3 Judged@3"]
    assert main(["experiment", *files[:3], "--output", str(out), *measures]) == 0
    text = page_text(out.with_suffix(".html"))
    assert "| run | system | steps | RR | P@3 | Judged@3 |" in text
    tested = [line for line in text.splitlines() if "every run against" in line]
    assert [line.split(":")[0] for line in tested] == ["R@3", "RR", "P@3", "set F1"]


def test_a_measure_that_no_run_is_deep_enough_for_is_refused(tmp_path, capsys):
    data = dataset(tmp_path / "small")
    short = write(tmp_path / "short", data, GOOD, "short", steps="single", options={"k": 3})
    chains = write(tmp_path / "chains", data, GOOD, "chains")
    command = ["experiment", f"--output={tmp_path / 'page'}", short]
    told = fails(capsys, *command, "--measures=R@4 RR P@4")
    assert "short.jsonl was cut off at 3 passages a query, so it has no R@4, P@4: retrieve again" in told
    assert main([*command, chains, "--measures=R@4 RR P@4"]) == 0  # a chain that ends has them
    assert main(command) == 0  # what nobody asked for is a dash
    assert "| short | generator | single | 41.7 | 83.3 | – | – | – |" in page_text(tmp_path / "page.html")


@pytest.mark.parametrize("command", ["experiment", "fuse"])
def test_an_output_that_names_a_folder_is_refused(command, files, tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    told = fails(capsys, command, files[0], files[3], "--output", f"{tmp_path}/runs/")
    assert "names a folder, and files are written" in told
    assert not list((tmp_path / "runs").iterdir())


def test_the_first_screen_has_the_chosen_one_its_gain_and_all_by_time_and_the_rest_is_folded(page):
    points = {"bm25": (0.001, 0.5), EVIL: (0.1, 0.5), "slow": (10.0, 0.9), "untimed": (None, 0.1)}
    found = compare([0.9, 0.9, 0.9], [0.5, 0.4, 0.6])
    facts, picture = blocks = answer_blocks(
        points, "slow", "chosen of 4", "R@5", "3 cut sentences", ("BM25", found)
    )
    assert facts.facts == (
        ("slow", "chosen of 4"),
        ("+40.0", "points of R@5 against BM25; 95% interval +30.0 to +50.0; 3 cut sentences"),
        ("90.0", "R@5 (%) on 3 cut sentences"),
        ("10 s", "a query, in batches and without loading"),
    )
    assert picture.caption == "R@5 (%) on 3 cut sentences, by time a query"
    svg = ElementTree.fromstring(picture.svg)
    marks = svg.findall("{*}circle")
    places = [(round(float(m.get("cx"))), round(float(m.get("cy")))) for m in marks]
    assert places == [(450, 20), (50, 220), (250, 220)]  # the chosen one first; log time; 10 points a line
    assert [m.get("r") for m in marks] == ["7", "4", "4"]  # the chosen one is larger
    scale = [text.text for text in svg.findall("{*}text") if not text.get("class")]
    assert scale == ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "50", "60", "70", "80", "90"]
    html = render_html(page._replace(answer=tuple(blocks)))
    assert html.index("+40.0</dt>") < html.index("<circle") < html.index("<details>")
    assert Document(html).named("details") == [{}] * len(page.sections)  # none is open


@pytest.mark.parametrize(
    ("points", "scale"),
    [
        ({"a": (0.01, 0.5), "b": (0.01, 0.5), "c": (0.01, 0.5)}, ["49", "50"]),
        ({"none": (0.01, 0.0), "of these": (2.0, 0.0)}, ["0", "1"]),
        ({"all": (0.0045, 1.0), "of these": (0.005, 1.0)}, ["99", "100"]),
        ({f"a system of name {n}": (0.9 + n / 100, 0.9 + n / 500) for n in range(9)}, ["90", "91", "92"]),
    ],
)
def test_labels_of_equal_and_near_systems_lie_on_nothing_and_the_axes_have_a_scale(points, scale):
    svg = ElementTree.fromstring(quality_by_time(points, [*points][-1], "R@5").svg)
    texts = svg.findall("{*}text")
    assert [text.text for text in texts if not text.get("class") and "s" not in text.text] == scale
    dots = [(float(m.get("cx")), float(m.get("cy"))) for m in svg.findall("{*}circle")]
    taken = [(x - 4, x + 4, y) for x, y in dots]
    for text in (text for text in texts if text.get("class")):
        left, at = float(text.get("x")), float(text.get("y")) - 4
        right = left + 7 * len(text.text)
        assert 0 <= left < right <= 480
        assert not any(left < end and begin < right and abs(at - y) < 12 for begin, end, y in taken)
        taken.append((left, right, at))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.004512, "0.0045"),
        (0.0, "0"),
        (0.000123, "0.0001"),
        (1.26, "1.3"),
        (99.7, "100"),
        (15.42, "15"),
        (1234.5, "1,234"),
    ],
)
def test_costs_have_two_significant_digits(value, shown):
    assert two_digits(value) == shown
    cost = compare_systems({"a": [SystemRun({"R@5": [0.5]}, costs={"seconds": value})]}, None)
    table = ExperimentTable(("R@5",), cost, None, 5, 1).table()
    assert (table.heads[-1], table.rows[0][-1].text) == ("seconds a query", shown)
