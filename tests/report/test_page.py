"""The page as written: complete, self-contained, escaped, the same every time."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from failing import fails, refuses
from report_helpers import GOOD, POOR, dataset, page_text, write

from grls.cli import main
from grls.errors import ConfigError
from grls.report.measure import score_runs
from grls.report.page import build_page, render_html, write_report
from grls.report.runs import load_groups

EVIL = "<script>alert('x')</script> $\\frac{1}$ | [a](b) *c*"


class Document(HTMLParser):
    """Tags with their attributes; text outside styles; refuses a tag that is closed out of turn."""

    VOID = ("meta", "link", "img", "br", "rect", "path", "use", "!doctype")

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
    """Runs on two data sets, one without answers to a query, one with an evil name."""
    tmp_path = tmp_path_factory.mktemp("runs")
    small, other = dataset(tmp_path / "small"), dataset(tmp_path / "other")
    return [
        write(tmp_path / "a", small, GOOD, "good", stages=("memorise", "retrieve")),
        write(tmp_path / "b", small, POOR, EVIL, steps="fixed"),
        write(tmp_path / "c", small, {"q1": ["f1"]}, "half", "biencoder", "single"),
        write(tmp_path / "d", other, POOR, "good"),
    ]


def page_of(files, **options):
    groups = [score_runs(group, (1, 3)) for group in load_groups(files)]
    return build_page(groups, (1, 3), 3, **options)


@pytest.fixture(scope="module")
def page(files):
    return page_of(files)


def test_the_page_has_every_section_of_every_data_set(page, files):
    assert [section.title for section in page.sections] == [
        "All data sets",
        "small, test",
        "other, test",
        "What was run",
    ]
    assert [part.title for part in page.sections[1].parts] == [
        "Recall", "Standard measures", "Memorisation", "Fixed and dynamic steps", "Other metrics",
        "Proof graphs", "Significance", "Similarity of predictions",
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
    assert all(attributes.get("scope") in ("col", "row", "colgroup") for attributes in document.named("th"))
    count = len(document.named("table"))
    assert len(document.named("caption")) == count > 10
    regions = [a for a in document.named("div") if a.get("class") == "scroll"]
    assert len(regions) == count
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in regions)
    assert all(a["aria-hidden"] == "true" for a in document.named("svg"))
    assert (
        len(document.named("figcaption")) == len(document.named("figure")) == len(document.named("svg")) > 5
    )


def test_names_and_passages_are_escaped_in_html_and_pictures(page, tmp_path):
    html = render_html(page)
    assert EVIL in " ".join(Document(html).texts).replace("\u00a0", " ")
    assert "<script" not in html
    write_report(page, str(tmp_path / "out"))
    for file in (tmp_path / "out-figures").glob("*.svg"):
        root = ElementTree.parse(file).getroot()
        assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    curves = (tmp_path / "out-figures" / "small-recall.svg").read_text()
    assert "$\\frac{1}$" in curves  # a name, not a formula


def test_a_query_without_an_answer_is_said(page):
    said = [block.text for block in page.sections[1].parts[0].blocks if hasattr(block, "warning")]
    assert said[1:] == ["half on small: no passage for 1 of 2 queries; they score 0."]
    assert said[1] in render_html(page)


def test_the_first_sentence_says_what_finds_most(page):
    said = page.sections[1].parts[0].blocks[0]
    assert said.text.startswith("good finds most: R@3 100.0 over 2 queries; next ")
    assert said.text.endswith(" with 58.3.")
    assert not said.warning


def test_writing_is_the_same_every_time_and_drops_old_pictures(files, tmp_path):
    output = str(tmp_path / "out")
    write_report(page_of(files[:2]), output)
    first = {file.name: file.read_bytes() for file in (tmp_path / "out-figures").iterdir()}
    html = (tmp_path / "out.html").read_bytes()
    written = write_report(page_of(files[:2]), output)
    assert [path.name for path in written] == ["out.html", "out-figures"]
    assert {file.name: file.read_bytes() for file in (tmp_path / "out-figures").iterdir()} == first
    assert (tmp_path / "out.html").read_bytes() == html
    write_report(page_of(files[3:]), output)
    left = {file.name for file in (tmp_path / "out-figures").iterdir()}
    assert "other-recall.svg" in left
    assert not [name for name in left if name.startswith("small")]


def test_a_folder_of_something_else_is_not_replaced(page, tmp_path):
    (tmp_path / "out-figures").mkdir()
    (tmp_path / "out-figures" / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"out-figures exists and holds no figures.json"):
        write_report(page, str(tmp_path / "out"))
    assert not (tmp_path / "out.html").exists()


def test_the_inline_pictures_take_the_colour_of_the_page(page):
    html = render_html(page)
    assert "currentColor" in html
    figures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert figures
    assert not [svg for svg in figures if "#16181d" in svg or "<style" in svg or "#000000" in svg]


def test_options_that_cannot_work_are_refused(files):
    with pytest.raises(ConfigError, match="the baseline 'x' is none of the runs"):
        page_of(files, baseline="x")
    with pytest.raises(ConfigError, match="proofs must be at least 0"):
        page_of(files, proofs=-1)


def test_the_command_writes_and_refuses(files, tmp_path, capsys):
    assert main(["report", *files[2:], f"--output={tmp_path / 'page'}", "--ks=[1,3]", "--k=3"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{tmp_path}/page{end}" for end in (".html", "-figures")]
    message = fails(capsys, "report", "--output", tmp_path / "x", tmp_path / "none.trec")
    assert message.startswith(f"error: {tmp_path}/none.trec: no such file")
    assert not list(tmp_path.glob("x*"))
    assert "runs" in refuses(capsys, "report", f"--output={tmp_path / 'x'}")


def test_measures_asked_for_have_columns_and_tests(files, tmp_path):
    out = tmp_path / "page"
    assert (
        main(["report", *files[:3], "--output", str(out), "--measures", "RR P@3 Judged@3", "--k", "3"]) == 0
    )
    text = page_text(out.with_suffix(".html"))
    assert "| run | system | steps | RR | P@3 | Judged@3 |" in text
    tested = [line for line in text.splitlines() if "every run against" in line]
    assert [line.split(":")[0] for line in tested] == ["R@3", "RR", "P@3", "set F1"]
    assert "good finds most: R@3 100.0 over 2 queries" in text


def test_a_measure_that_no_run_is_deep_enough_for_is_refused(tmp_path, capsys):
    data = dataset(tmp_path / "small")
    short = write(tmp_path / "short", data, GOOD, "short", steps="single", options={"k": 3})
    chains = write(tmp_path / "chains", data, GOOD, "chains")
    command = ["report", f"--output={tmp_path / 'page'}", short]
    told = fails(capsys, *command, "--ks=[1,4]", "--measures=RR P@4")
    assert "short.jsonl was cut off at 3 passages a query, so it has no R@4, P@4: retrieve again" in told
    assert main([*command, chains, "--ks=[1,4]", "--measures=RR P@4"]) == 0  # a chain that ends has them
    assert main(command) == 0  # what nobody asked for is a dash
    assert "| short | generator | single | 41.7 | – | – | – |" in page_text(tmp_path / "page.html")


@pytest.mark.parametrize("command", ["report", "fuse"])
def test_an_output_that_names_a_folder_is_refused(command, files, tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    told = fails(capsys, command, files[0], files[3], "--output", f"{tmp_path}/runs/")
    assert "names a folder, and files are written" in told
    assert not list((tmp_path / "runs").iterdir())
