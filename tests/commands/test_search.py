"""``grls search``: one question on the terminal, whatever the retriever."""

import io
import json
import shutil
from pathlib import Path

import pytest
from failing import fails
from fixture_types import Capsys, Patch

import grls
from grls.cli import main

CORPUS = [
    {"_id": "a", "title": "Otters", "text": "Otters eat fish. " * 40, "metadata": {"year": 1999}},
    {"_id": "b", "title": "", "text": "A holt is an otter's den.\x1b[2J\x9b2J", "metadata": {"year": 2001}},
    {"_id": "c", "title": "Rivers", "text": "Fish live in rivers.", "metadata": {"year": 2004}},
]


@pytest.fixture(scope="module")
def place(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    grls.BM25(CORPUS).save(folder / "bm25")
    for name in ("data", "generative"):
        shutil.copytree(kinds / name, folder / name)
    return folder


def printed(capsys: Capsys, *arguments: str) -> str:
    assert main(["search", *arguments]) == 0
    return capsys.readouterr().out


def test_a_ranking_with_the_first_lines_of_each_passage(
    place: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = printed(capsys, str(place / "bm25"), "what do otters eat?")
    lines = out.splitlines()
    assert lines[0].split()[0::2] == ["1", "a"]
    assert lines[0].endswith("  Otters")
    assert lines[3].endswith(" …")
    assert max(map(len, lines)) <= 60
    assert len(lines) == 4
    shown = printed(capsys, str(place / "bm25"), "holt")
    assert not {"\x1b", "\x9b"} & set(shown)
    line = printed(capsys, str(place / "bm25"), "holt", "--json=true")
    assert not {"\x1b", "\x9b"} & set(line)
    assert json.loads(line)["hits"][0]["text"] == CORPUS[1]["text"]


def test_filters_k_and_nothing(place: Path, capsys: Capsys) -> None:
    found = json.loads(
        printed(capsys, str(place / "bm25"), "otters fish", "--where=year>=2000", "--json=true")
    )
    assert found["query"] == "otters fish"
    assert [hit["id"] for hit in found["hits"]] == ["c"]
    assert found["hits"][0]["text"] == "Fish live in rivers."
    assert printed(capsys, str(place / "bm25"), "zebra") == "nothing was found\n"
    assert len(printed(capsys, "bm25", "otter", f"--data={place / 'data'}", "--k=1").splitlines()) <= 2


def test_questions_from_standard_input(place: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("holt\n\nrivers\n"))
    lines = printed(capsys, str(place / "bm25"), "-", "--json=true").splitlines()
    assert [json.loads(line)["hits"][0]["id"] for line in lines] == ["b", "c"]
    monkeypatch.setattr("sys.stdin", io.StringIO("holt\nrivers\n"))
    assert printed(capsys, str(place / "bm25"), "-", "--k=1").startswith("holt\n\n  1 ")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert "there is no question" in fails(capsys, "search", str(place / "bm25"), "-")


def test_hops_as_they_are_found(place: Path, capsys: Capsys) -> None:
    searcher = grls.load(place / "generative").hops(steps="dynamic", max=2, output=place / "hops")
    hops = list(searcher.stream("is the otter calm?"))
    folder = str(place / "hops")
    lines = printed(capsys, folder, "is the otter calm?", "--stream=true", "--json=true").splitlines()
    expected = [[hit._asdict() | {"hop": hit.hop} for hit in hop.chain] for hop in hops]
    assert [json.loads(line)["chain"] for line in lines] == expected
    lines = printed(capsys, folder, "is the otter calm?", "--stream=true").splitlines()
    assert lines[-1].startswith("chain: " + " -> ".join(hit.id for hit in hops[-1].chain))
    assert f"(score of the chain {hops[-1].score:.4f})" in lines[-1]
    assert f"{hops[0].chain[0].score:.4f} in this hop  {hops[0].chain[0].id}" in lines[0]


def test_options_of_hops_are_those_of_retrieve(place: Path, capsys: Capsys) -> None:
    """What the folder stores is the default, and may be replaced."""
    query, generative = "is the otter calm?", grls.load(place / "generative")
    stored = generative.hops(steps="dynamic", max=3, output=place / "stored").folder
    for folder, options, hops in (
        (place / "generative", ["--hops.steps=fixed", "--hops.max=2"], {"steps": "fixed", "max": 2}),
        (stored, ["--hops.max=2"], {"steps": "dynamic", "max": 2}),
        (stored, [], {"steps": "dynamic", "max": 3}),
    ):
        found = json.loads(printed(capsys, str(folder), query, *options, "--json=true"))
        expected = generative.hops(**hops).search(query, 5)  # type: ignore[arg-type]
        assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in expected]
        assert [hit["hop"] for hit in found["hits"]] == list(range(1, len(expected) + 1))
    shown = printed(capsys, str(stored), query).splitlines()
    assert f" up to this hop  {expected[0].id}" in shown[0]
    single = json.loads(printed(capsys, str(stored), query, "--hops.steps=single", "--json=true"))
    assert [hit["id"] for hit in single["hits"]] == [hit.id for hit in generative.search(query, 5)]
    assert not any("hop" in hit for hit in single["hits"])
    wrong = ["search", str(place / "generative"), query, "--hops.steps=dynamic", "--hops.pool=true"]
    told = fails(capsys, *wrong)
    line = ["retrieve", str(place / "generative"), f"--data={place / 'data'}", f"--output={place / 'run'}"]
    assert told == fails(capsys, *line, *wrong[3:])


def test_metadata_are_printed_where_they_are_asked_for(place: Path, capsys: Capsys) -> None:
    line = [str(place / "bm25"), "holt", "--metadata=true"]
    assert json.loads(printed(capsys, *line, "--json=true"))["hits"][0]["metadata"] == {"year": 2001}
    assert printed(capsys, *line).endswith('\n     {"year": 2001}\n')


def test_ranked_hops_end_with_their_ranking(place: Path, capsys: Capsys) -> None:
    """The chain of ranked hops is only the way: the ranking is the answer."""
    query = "is the otter calm?"
    ranked = grls.load(place / "generative").hops(steps="ranked", max=2, output=place / "ranked")
    hits, hops = ranked.search(query, 3), list(ranked.stream(query))
    asked = (str(place / "ranked"), query, "--stream=true", "--k=3")
    lines = [json.loads(line) for line in printed(capsys, *asked, "--json=true").splitlines()]
    assert [line.get("number") for line in lines] == [*(hop.number for hop in hops), None]
    assert [hit["id"] for hit in lines[-1]["hits"]] == [hit.id for hit in hits]
    shown = printed(capsys, *asked).partition("this ranking is the answer, not the chain.\n")[2]
    assert [line.split()[2] for line in shown.splitlines() if line[2:3].isdigit()] == [h.id for h in hits]


def test_a_passage_that_was_found_by_a_name_says_so(place: Path, capsys: Capsys) -> None:
    passages = [
        {"id": "film", "title": "Blue Moon Rising", "text": "A film by anna kalb."},
        {"id": "woman", "title": "Anna Kalb (director)", "text": "A director."},
    ]
    grls.BM25(passages).save(place / "films")
    asked = (str(place / "films"), "who made Blue Moon Rising?", "--hops.steps=ranked")
    lines = printed(capsys, *asked).splitlines()
    assert lines[1:3] == ["     A film by anna kalb.", '     by "Blue Moon Rising" in the question']
    assert lines[4:] == ["     A director.", '     by "Anna Kalb" in film']
    streamed = printed(capsys, *asked, "--stream=true").splitlines()
    assert streamed.count('     by "Anna Kalb" in film') == 2
    assert " in film" not in printed(capsys, *asked, "--hops.links=false")
