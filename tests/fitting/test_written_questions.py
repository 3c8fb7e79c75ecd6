"""Runs without labelled questions, for which a language model writes some."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chat_server import Server, address, serving
from fit_helpers import WORDS_ALONE, fit_options, write_fit_data
from llama_small import write_untrained
from report_helpers import page_text
from small_data import tiny_bert

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import evidence_qrels, read_queries, write_dataset
from grls.data.types import Hit, Passage, Query
from grls.fitting import questions, run, stages
from grls.fitting.candidates import FitCandidates, JudgedQueries
from grls.fitting.choose import Candidate
from grls.fitting.journal import FitProgress
from grls.fitting.result import Fitted
from grls.fitting.run import fit_dataset, plan_dataset
from grls.fitting.search import TimeIsUp
from grls.fitting.splits import read_data
from grls.train.doc2query import questions as asking
from grls.train.doc2query import written

FILMS = 24


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(asking.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(questions, "_EACH", 1)
    with serving() as made:
        made.answer = question
        yield made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Films whose passages name their directors, whose passages say where they were born."""
    towns = ("Tallow", "Brind", "Corvey", "Dunmore", "Elstow", "Farrow", "Gannet", "Hollin") * 3
    films = [
        Passage(f"f{n}", f"A quiet film by Person{n} Smith of that year.", f"Film Nr{n}")
        for n in range(FILMS)
    ]
    people = [Passage(f"p{n}", f"Born in {town}.", f"Person{n} Smith") for n, town in enumerate(towns)]
    Corpus.from_passages([*films, *people]).write(tmp_path / "data" / "corpus.jsonl")
    return tmp_path / "data"


def question(turns: list[dict[str, str]]) -> str:
    """A good question for each passage, and for a film and its director."""
    first, *more = re.findall(r"Passage(?: \d)?: (\w+ ?\w+)\.", turns[-1]["content"])
    if more:
        return f"In which town did the maker of {first} grow up?"
    return (
        f"Who made the picture {first}?"
        if first.startswith("Film")
        else f"Which town does {first} come from?"
    )


def fitted(data: Path, output: Path, server: Server | None, **more: Any) -> Fitted:
    given = {"writer": address(server), "writer_model": "some"} if server is not None else {}
    options = fit_options(**WORDS_ALONE | given | more)
    return fit_dataset(read_data(data, options), output, options)


def test_questions_are_written_once_taught_and_named_in_what_results(
    data: Path,
    tmp_path: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(questions, "_K", 2 * FILMS)  # the bi-encoder is random
    monkeypatch.setattr(stages, "ENCODER_EPOCHS", 1)
    tiny_bert(tmp_path / "bert")
    output, models = tmp_path / "out", {"biencoder": str(tmp_path / "bert")}
    ended = fitted(data, output, server, **models)
    said = capsys.readouterr().out
    assert len(server.asked) == 3 * FILMS
    kinds = {
        kind: sum(
            len(query.evidence) == kind and not query.id.startswith("masked")
            for query in read_queries(output / "data")
        )
        for kind in (1, 2)
    }
    assert f"questions: {kinds[1] / (2 * FILMS):.0%} of those of 1 passage pass" in said
    assert f"questions: {kinds[2] / FILMS:.0%} of those of 2 passages pass" in said
    assert re.search(r"about [\d,]+ tokens are read and written for 72 questions", said)
    assert "  Who made the picture Film Nr" in said
    assert {"dense", "dense-hops"} < ended.metrics.keys()
    assert ended.kept == "bm25-hops + base-hops"  # until something tells, what needs no training
    assert [*ended.queries] == ["written questions"]
    masked = {file.stem for file in (output / "runs" / "links").glob("*.jsonl")}
    assert masked == {"bm25", "base", "dense"}
    assert ended.gain == ""
    content = json.loads((output / "fit.json").read_text())
    assert content["data"]["pseudo"] == {
        **dict.fromkeys(("train", "dev", "tune"), "written questions"),
        "links": "masked names",
    }
    work = (
        f"some writes questions: 72 of them; {kinds[1] / (2 * FILMS):.0%} of those of 1 passage pass; "
        f"{kinds[2] / FILMS:.0%} of those of 2 passages pass; about "
    )
    stage, *_ = content["account"]["done"]
    assert re.match(rf"{work}[\d,]+ tokens were read and written$", stage["stage"])
    assert stage["seconds"] > 0
    assert work in page_text(output / "report.html")
    assert work in (output / "README.md").read_text()
    for text in (said, page_text(output / "report.html"), (output / "README.md").read_text()):
        assert f"no labelled questions: {sum(kinds.values())} written questions of a language model" in text
        assert not re.search(r"\bdev R@|dev quer|\d dev\b(?! \(written questions\))|cut sentences", text)
    done = (output / "fit.jsonl").read_text()
    assert fitted(data, output, server, **models).metrics == ended.metrics
    assert ((output / "fit.jsonl").read_text(), len(server.asked)) == (done, 3 * FILMS)
    assert json.loads((output / "fit.json").read_text())["account"]["done"][0] == stage


def test_a_run_goes_on_with_what_was_written_when_the_server_fails_or_time_is_up(
    data: Path,
    tmp_path: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.answer = lambda turns: 500 if len(server.asked) > 64 else question(turns)
    ended = fitted(data, tmp_path / "out", server)
    assert [*ended.queries] == ["written questions"]
    assert "Call again later: what was written stays. The run goes on with what" in capsys.readouterr().out
    server.answer, asked, real = question, len(server.asked), written.written

    def late(*given: Any) -> Any:
        real(*given)
        raise TimeIsUp

    monkeypatch.setattr(written, "written", late)
    assert [*fitted(data, tmp_path / "late", server).queries] == ["written questions"]
    assert "the time was up before it was done. The run goes on" in capsys.readouterr().out
    assert len(server.asked) == asked + 3 * FILMS


def french(turns: list[dict[str, str]]) -> str:
    return f"Quelle est la raison pour laquelle {question(turns)[-10:]} vit dans cette rivière ?"


@pytest.mark.parametrize(
    ("answer", "more", "said"),
    [
        (500, {}, "Call again later: what was written stays. 0 questions can be used, where 40 are needed"),
        (b"<html>", {}, "answers otherwise than an OpenAI-compatible server does"),
        (french, {}, "the questions seem to be in 'fr', and the passages in 'en': take another model"),
        ("What is it?", {}, "of the first 64 fewer than 20% pass. 0 questions can be used, where 40 are"),
        (question, {"writer_limit": 100}, "writer_limit 100 is too little: a question takes about"),
        (question, {"writer_limit": 9000}, "writer_limit 9000 is too little: a question takes about"),
    ],
)
def test_without_good_questions_cut_sentences_stand_in_until_a_later_call_has_some(
    answer: Any, more: dict[str, Any], said: str,
    data: Path, tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    server.answer = answer if callable(answer) else lambda turns: answer
    ended = fitted(data, tmp_path / "out", server, **more)
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("questions: left out")]
    assert said in line.replace("=", " ").replace("--", "")
    assert line.endswith("; cut sentences stand in for them")
    assert ended.skipped[0].what == "some writes questions"
    assert line.startswith(f"questions: {ended.skipped[0].why};")
    assert [*ended.queries] == ["cut sentences"]
    asked = 64 if answer in (french, "What is it?") else 0  # the others are not asked for, nor these again
    if asked or more:
        assert len(server.asked) == asked
        fitted(data, tmp_path / "out", server, **more)
        assert len(server.asked) == asked
    if answer in (500, b"<html>"):
        server.answer = question
        again = fitted(data, tmp_path / "out", server)
        assert [*again.queries] == ["written questions"]
        assert again.done[0][0].startswith("some writes questions: 72 of them; ")
        assert "questions" not in [stage.name for stage in again.skipped]
        assert again.metrics["bm25"] != ended.metrics["bm25"]
        assert again.metrics == fitted(data, tmp_path / "other", server).metrics


def test_what_cut_sentences_taught_is_trained_anew_with_written_questions(
    data: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_K", 2 * FILMS)
    monkeypatch.setattr(stages, "ENCODER_EPOCHS", 1)
    tiny_bert(tmp_path / "bert")
    asked = [Query(f"q{n}", f"who made Film Nr{n} ?", (f"f{n}",)) for n in range(8)]
    write_dataset(data, Corpus.read(data), asked, {"dev": evidence_qrels(asked)})
    output, models = tmp_path / "out", {"biencoder": str(tmp_path / "bert")}
    server.answer = lambda turns: 400
    fitted(data, output, server, **models)
    (weights,) = (output / "stages" / "biencoder" / "model").glob("**/model.safetensors")
    cut, server.answer = weights.read_bytes(), question
    fitted(data, output, server, **models)
    assert weights.read_bytes() != cut


def test_a_model_here_that_writes_nonsense_and_no_time_leave_cut_sentences(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(questions, "MOST", 6)
    monkeypatch.setattr(questions, "LEAST", 1)
    (data / "queries.jsonl").write_text('{"_id": "q", "text": "who ?"}\n')
    model = str(write_untrained(tmp_path / "model", data, " ".join(asking.SHOWN), 1024))
    (data / "queries.jsonl").unlink()
    assert [*fitted(data, tmp_path / "out", None, writer=model).queries] == ["cut sentences"]
    assert "0 of 3 pseudo-queries kept" in capsys.readouterr().out
    monkeypatch.setattr(run, "_WRITING", 0.0)
    late = fitted(data, tmp_path / "late", None, writer=model, budget="1h")
    assert [*late.queries] == ["cut sentences"]
    assert "questions: left out: the time was up before it was done" in capsys.readouterr().out
    monkeypatch.setattr(questions, "LEAST", 7)
    fitted(data, tmp_path / "few", None, writer=model)
    assert "questions: left out: 6 questions can be written, where 7 are needed" in capsys.readouterr().out
    assert not [*(tmp_path / "few" / "stages").glob("questions.jsonl*")]


def test_judging_ends_when_time_is_up_and_what_passed_stays(
    data: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    real, limits = written.judged, list[float | None]()
    monkeypatch.setattr(FitProgress, "limit", lambda self, seconds: limits.append(seconds))

    def slow(*given: Any) -> Any:
        if given[3] == 2 and len(given[0]) == FILMS:
            assert 0 < (limits[-1] or 0) <= 0.4 * 3600
            raise TimeIsUp
        return real(*given)

    monkeypatch.setattr(written, "judged", slow)
    fitted(data, tmp_path / "out", server, budget="1h")
    assert "questions: the time was up before it was done. The run goes on" in capsys.readouterr().out
    kept = read_queries(tmp_path / "out" / "stages" / "questions.jsonl")
    assert {len(query.evidence) for query in kept} == {1}


def test_labelled_questions_need_no_writer(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_fit_data(tmp_path / "data")
    fitted(data, tmp_path / "out", server)
    assert "writes nothing: there are labelled questions to learn from" in capsys.readouterr().out
    assert server.asked == []


def test_the_plan_and_the_command_name_the_writer(
    data: Path, tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    options = fit_options(**WORDS_ALONE, writer=address(server), writer_model="some")
    plan = plan_dataset(read_data(data, options), tmp_path / "out", options)
    told = r"questions: some writes them, to train with: about [\d,]+ tokens are read and written for 72 q"
    assert re.search(told, plan)
    tiny_bert(tmp_path / "bert")
    trained = replace(options, biencoder=str(tmp_path / "bert"))
    plan = plan_dataset(read_data(data, trained), tmp_path / "out", trained)
    assert "nothing is trained" not in plan
    assert "  dense: fine-tune" in plan
    assert server.asked == []
    given = ["--biencoder", "none", "--generator", "none", "--device", "cpu", "--writer_model", "some"]
    assert (
        main(["fit", str(data), "--output", str(tmp_path / "out"), "--writer", address(server), *given]) == 0
    )
    assert len(server.asked) == 3 * FILMS
    assert main(["fit", str(data), "--output", str(tmp_path / "out"), *given[:6]]) == 1
    assert "was begun with other settings (writer)" in capsys.readouterr().err


@pytest.mark.parametrize(("there", "loses"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("name", ["dense", "rescored", "bm25-hops + dense-hops"])
def test_a_trained_retriever_may_not_lose_masked_names(
    name: str, there: bool, loses: bool, tmp_path: Path
) -> None:
    """Ranked in their stages: what was cut off before it ranked them is not kept."""
    qrels = {f"m{number}": {"a": 1} for number in range(9)}
    gold = JudgedQueries("links", [Query(id, "?") for id in qrels], qrels)
    single = "dense" if "dense" in name else name
    found, file = {"base": ["a"], single: ["b"] if loses else ["a"]}, tmp_path / "run.jsonl"
    file.touch()
    candidates: Any = SimpleNamespace(
        systems=found,
        data=SimpleNamespace(qrels={"links": qrels}),
        options=SimpleNamespace(decides="R@1"),
        run_file=lambda _, name: (
            file if name == "base" or (name, there) == (single, True) else tmp_path / "none"
        ),
        gold=lambda split: gold,
        rankings=lambda name, golds: [[Hit(id, 1.0) for id in found[name]] for _ in qrels],
    )
    said = FitCandidates._masked(candidates, Candidate(name, [1.0], [1.0], 1.0, tuple(name.split(" + "))))
    assert said == (there and not loses)
