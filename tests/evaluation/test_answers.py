"""Answers files: read, scored, tabled."""

import json
import logging
from pathlib import Path
from typing import Any

import nli_models
import pytest
from failing import fails, raises
from fixture_types import Capsys
from run_files import write_jsonl_run
from small_data import write_jsonl

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.evaluation.answers import (
    Answered,
    Evidence,
    read_answers,
    score_answers,
    summary,
    table,
    write_answers,
)
from grls.evaluation.metrics import answer_f1, normalise_answer, novel_f1
from grls.runs.portions import ANSWERS, RunInfo, write_info

PASSAGES = [
    Passage("a", "it is blue .", "the barn"), Passage("b", "the barn is red", ""),
    Passage("c", "it is green", ""),
]  # fmt: skip
QUERIES = [
    Query("q1", "what is so", ("b",), ("the barn",), '{"answers": ["the barn"]}'),
    Query("q2", "what is it", ("c",), ("green",), '{"answers": ["green"]}'),
    Query("q3", "what so", ("a",)),
    Query("q4", "what", (), ("red", "blue barn"), '{"answers": ["red", "blue barn"]}'),
]
QRELS = {"q1": {"b": 1}, "q2": {"c": 1, "a": 0}, "q3": {"a": 1}, "q4": {"b": 0}}


def quote(text: str, *passages: str, closed: bool = True) -> dict[str, Any]:
    return {"text": text, "keys": [text], "passages": passages, "score": -1.0, "closed": closed}


def line(query: str, answer: str, *quotes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"query_id": query, "text": "…", "answer": answer, "ended": True, "quotes": quotes, **more}


LINES = [
    line("q1", "Barn", quote("the barn is", "a"), quote("red", "b", "a"), quote("it", closed=False)),
    line("q2", "grey", quote("it is green", "c"), retrieved=["a", "c"], ended=False),
    line("q4", "the barn"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "data", PASSAGES, QUERIES, {"test": QRELS})
    return tmp_path / "data"


def test_answers_are_read_as_they_are_written(tmp_path: Path) -> None:
    write_answers(tmp_path / "x.answers.jsonl", LINES)
    found = read_answers(tmp_path / "x.answers.jsonl")
    assert found["q1"] == Answered(
        "Barn", True, (Evidence("the barn is", ("a",), True), Evidence("red", ("b", "a"), True),
                       Evidence("it", (), False)), ("a", "b"),
    )  # fmt: skip
    assert found["q2"].retrieved == ("a", "c")
    assert not found["q2"].ended
    assert found["q4"] == Answered("the barn")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "holds no answer"),
        ([LINES[0], LINES[0]], "line 2: the query id 'q1' is used twice"),
        ([line("q1", "x") | {"answer": None}], "expected 'answer' to be a string"),
        ([{"query_id": "q1", "answer": ""}], "line 1: expected a line as `grls answer`"),
        ([line("q1", "x", {"text": "y"})], r"expected a line as .* \('passages'\)"),
        ([line("q1", "x", quote("y", 3))], "expected a string, got 3"),  # type: ignore[arg-type]
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, lines: list[Any], message: str) -> None:
    file = write_jsonl(tmp_path / "x.answers.jsonl", lines)
    raises(DataError, message, read_answers, file)


def answered(
    place: Path, data: Path, name: str, lines: list[Any], split: str | None = None, **more: Any
) -> str:
    """A file of answers, and the run and the manifest beside it."""
    corpus = Corpus.read(data)
    write_answers(place / f"{name}{ANSWERS}", lines)
    write_jsonl_run(place / f"{name}.jsonl", QUERIES, corpus, "full")
    named = more.pop("named", name)
    write_info(
        place / name, RunInfo("generator", named, "single", corpus.fingerprint, "", "", split, "full", **more)
    )
    return str(place / f"{name}{ANSWERS}")


def scores_of(lines: list[Any], tmp_path: Path, **options: Any) -> dict[str, Any]:
    write_answers(tmp_path / "x.answers.jsonl", lines)
    return score_answers(read_answers(tmp_path / "x.answers.jsonl"), QUERIES, QRELS, **options)


@pytest.mark.parametrize(("options", "hits"), [({"k": 2}, "-"), ({"k": 3}, "66.7"), ({"k": None}, "66.7")])
def test_hits_read_no_deeper_than_the_passages_that_were_retrieved(
    options: dict[str, Any], hits: str, data: Path, tmp_path: Path, capsys: Capsys
) -> None:
    ranked = [line("q1", "Barn", retrieved=["a", "b"]), line("q2", "grey", retrieved=["a", "c"])]
    file = answered(tmp_path, data, "x", ranked, "test", options=options)
    assert main(["evaluate", file, "--data", str(data)]) == 0
    heads, _, cells = [row.split("|") for row in capsys.readouterr().out.splitlines()[:3]]
    shown = dict(zip(map(str.strip, heads), map(str.strip, cells), strict=True))
    assert (shown["Hits@1"], shown["Hits@5"]) == ("0.0", hits)
    assert main(["evaluate", file, "--data", str(data), "--ks", "1", "5"]) == int(hits == "-")
    assert ("cut off at 2 passages a query, so it has no hits@5" in capsys.readouterr().err) == (hits == "-")


def test_every_query_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        scores = scores_of(LINES, tmp_path, ks=(1, 2))
    assert scores == {
        "queries": 4,
        "unanswered": 1,
        "quotes": 1.0,
        "not_closed": 0.25,
        "not_ended": 0.25,
        "judged": 3,  # q4 has no gold passage
        "hits@1": 0.0,
        "hits@2": pytest.approx(2 / 3),
        "asked": 3,  # q3 has no accepted answer
        "exact_match": pytest.approx(1 / 3),
        "f1": pytest.approx((1 + 0 + 2 / 3) / 3),
        "autoais": None,
    }
    assert "without a line among the answers: 1 of 4 queries" in caplog.text
    text = summary(scores | {"seconds": 0.5})
    assert "4 queries, 0.50 s each, 1 without an answer; 1.00 quotes a query, 25.0 % not closed" in text
    assert "passages: hits@1 0.0, hits@2 66.7 (3 queries)" in text
    assert "exact match 33.3, F1 55.6 (3 queries)" in text
    assert "AutoAIS" not in text


class Judge:
    def __init__(self) -> None:
        self.premises: list[str] = []

    def entails(self, premises: list[str], hypotheses: list[str]) -> list[bool]:
        self.premises += premises
        return ["red" in text for text in premises]


def test_the_premise_is_what_was_quoted(tmp_path: Path) -> None:
    judge = Judge()
    scores = scores_of(LINES, tmp_path, judge=judge)
    assert scores["autoais"] == 0.25
    assert judge.premises == ["the barn is\nred", "it is green"]
    assert "AutoAIS 25.0" in summary(scores | {"seconds": None})


def test_without_gold_there_is_nothing_to_average(tmp_path: Path) -> None:
    scores = score_answers({"q": Answered("x")}, [Query("q", "why")], {})
    assert (scores["judged"], scores["asked"], scores["f1"]) == (0, 0, None)
    assert summary(scores | {"seconds": None}).count("\n") == 0


TALK = Query(
    "t", "And what colour was the barn?", (), ("The barn was a deep red.",),
    '{"history": [["Who owned the mill?", "Orla."], "Was it red?"]}',
)  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("deep blue", 2 / 3),  # "deep" alone is new: "red", "barn" and function words are not
        ("the mill was a deep red barn", 1.0),
        ("Orla", 0.0),
        ("the red barn", 0.0),  # nothing new, where something is
        (" ", 0.0),
    ],
)
def test_novel_f1_counts_what_no_question_has_said(answer: str, expected: float) -> None:
    """The words of replies count, those of all questions so far do not."""
    scores = score_answers({"t": Answered(answer)}, [TALK], {})
    assert scores["novel_f1"] == pytest.approx(expected)
    assert f"novel-F1 {100 * expected:.1f} (1 query)" in summary(scores | {"seconds": None})
    assert "| novel-F1 |" in table([{"name": "x", "file": "x", "seconds": None, **scores}])[0]
    for other in (QUERIES[0], QUERIES[0]._replace(metadata='{"history": "of the barn"}')):
        assert "novel_f1" not in score_answers({"q1": Answered("barn")}, [other], {})
    both = score_answers({"t": Answered(answer)}, [QUERIES[0], TALK], {})
    assert both["novel_f1"] == pytest.approx(expected / 2)


def test_an_answer_that_repeats_what_was_said_is_right_where_the_accepted_one_does() -> None:
    assert novel_f1("the barn", ["barn"], ["what about the barn"]) == {"novel_f1": 1.0}
    assert novel_f1("so it is", ["mill", "it is so"], ["what"]) == {"novel_f1": 1.0}
    raises(ValueError, "without accepted answers", novel_f1, "x", [], ["what"])


def test_the_command(data: Path, tmp_path: Path, capsys: Capsys) -> None:
    nli = nli_models.classifier(tmp_path / "nli")
    write_answers(tmp_path / f"two{ANSWERS}", [line("q1", "")])
    files = [
        answered(tmp_path, data, "one", LINES, named="The | first", seconds=6.0),
        f"{tmp_path}/two{ANSWERS}",
    ]
    output = tmp_path / "scores.json"
    code = main(
        ["evaluate", *files, "--data", str(data), "--ks", "[1,2]", "--nli", str(nli),
         "--device", "cpu", "--output", str(output)]
    )  # fmt: skip
    assert code == 0
    rows = [[cell.strip(" |") for cell in row.split(" | ")] for row in capsys.readouterr().out.splitlines()]
    assert rows[0][1:8] == ["Hits@1", "Hits@2", "F1", "EM", "AutoAIS", "quotes a query", "not closed"]
    assert " ; ".join(rows[2]) == (
        "The \\| first ; 0.0 ; 66.7 ; 55.6 ; 33.3 ; 25.0 ; 1.00 ; 25.0 ; 1 of 4 ; 2.00"
    )
    assert rows[3] == ["two", "0.0", "0.0", "0.0", "0.0", "0.0", "0.00", "0.0", "4 of 4", "-"]
    written = json.loads(output.read_text())
    assert [row["autoais"] for row in written["answers"]] == [0.25, 0.0]
    assert written["nli"] == str(nli)
    assert main(["evaluate", str(tmp_path / "two.answers.jsonl"), "--data", str(data), "--limit", "1"]) == 0
    assert "1 of 1" in capsys.readouterr().out


def test_the_split_is_that_of_the_manifest(data: Path, tmp_path: Path, capsys: Capsys) -> None:
    (data / "qrels" / "dev.tsv").write_bytes((data / "qrels" / "test.tsv").read_bytes())
    output = tmp_path / "scores.json"
    one, other = (answered(tmp_path, data, f"{split}-run", LINES, split) for split in ("dev", "test"))
    assert main(["evaluate", one, "--data", str(data), "--output", str(output)]) == 0
    assert json.loads(output.read_text())["split"] == "dev"
    assert "of the splits dev, test" in fails(capsys, "evaluate", one, other, "--data", str(data))


def test_the_number_of_queries_is_that_of_the_manifest(data: Path, tmp_path: Path, capsys: Capsys) -> None:
    limits = {"one": 2, "other": None}
    files = [answered(tmp_path, data, n, LINES[:2], "test", limit=limit) for n, limit in limits.items()]
    for options, unanswered in (
        ([files[0]], "0 of 2"),
        ([files[1]], "2 of 4"),
        ([*files, "--limit=3"], "1 of 3"),
    ):
        assert main(["evaluate", *options, "--data", str(data)]) == 0
        rows = capsys.readouterr().out.splitlines()[2:]
        assert [unanswered in row for row in rows] == [True] * len(rows)
    assert main(["evaluate", *files, "--data", str(data)]) == 1
    assert "of the first 2, all queries: give --limit N" in capsys.readouterr().err


@pytest.mark.parametrize(("line", "says"), [
    ("x.answers.jsonl --ks 0", "cut-offs k of at least 1"),
    ("x.answers.jsonl --limit 0", "--limit must be at least 1, got 0"),
    ("x.answers.jsonl --limit 1", "or --limit is too small"),
    ("x.answers.jsonl --nli ./nowhere", "no such folder"),
    ("x.answers.jsonl --measures=RR", "--measures, --baseline and --examples are of runs"),
    ("x.jsonl x.answers.jsonl", "holds answers, and others are runs"),
    ("x.jsonl --limit=2", "--limit and --nli are of answers"),
    ("x.jsonl --nli=nli", "--limit and --nli are of answers"),
    ("x.answers.jsonl bad.answers.jsonl", "bad.answers.jsonl: the query id 'q9'"),
    ("other.answers.jsonl", "give the --data that they were retrieved from"),
])  # fmt: skip
def test_what_cannot_be_scored_is_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys, line: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl_run(tmp_path / "x.jsonl", QUERIES, Corpus.read(data), "full")
    for name in ("x", "other"):
        write_answers(f"{name}{ANSWERS}", LINES)
    write_answers(f"bad{ANSWERS}", [LINES[0] | {"query_id": "q9"}])
    write_info(Path("other"), RunInfo("generator", "n", "single", "other", "", "", None, "full"))
    assert says in fails(capsys, "evaluate", *line.split(), "--data=data")


def test_no_answer_is_never_right() -> None:
    assert answer_f1(" ", ["The"]) == {"exact_match": 0.0, "f1": 0.0}
    assert answer_f1("the", ["The"]) == {"exact_match": 1.0, "f1": 1.0}


@pytest.mark.parametrize(
    ("answer", "accepted", "exact", "f1"),
    [
        ("北京市。", "北京", 0, 4 / 5),  # two of three characters, two of two
        ("「東京」です", "東京です。", 1, 1),
        ("1949年 10月", "1949年10月", 1, 1),
        ("กรุงเทพ", "กรุงเทพ", 1, 1),
        ("서울특별시", "서울", 0, 4 / 7),
        (
            "the café — Paris",
            "café Paris",
            0,
            4 / 5,
        ),  # a script with white space: as SQuAD's, the dash a word
    ],
)
def test_characters_are_the_words_of_answers_without_white_space(
    answer: str, accepted: str, exact: float, f1: float
) -> None:
    assert answer_f1(answer, [accepted]) == {"exact_match": exact, "f1": pytest.approx(f1)}


def test_answers_with_white_space_are_normalised_as_by_squad() -> None:
    assert normalise_answer("The  «Café»; an A.B. — Straße") == "«café» ab — straße"
    assert normalise_answer("维生素 A") == "维 生 素 a", "there are no articles"
