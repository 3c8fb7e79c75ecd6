"""Readers: what is read, what is asked next, when it ends."""

import logging
from pathlib import Path

import pytest
from failing import raises
from fixture_types import Caplog
from reader_helpers import ScriptedRetriever, ScriptedWriter
from run_files import write_jsonl_run
from small_data import write_small

from grls.answer.direct import DirectReader
from grls.answer.iterative import IterativeReader
from grls.answer.retrievers import FinishedRun
from grls.answer.writer import Questions
from grls.answer.written import Written
from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.errors import ConfigError, MismatchError
from grls.runs.portions import RunInfo, fingerprint_queries, write_info

CORPUS = Corpus.from_passages(
    [
        Passage("m", "The mill was built\nin 1820.", "Mill"),
        Passage("o", "Orla Finn owned the mill.", ""),
        Passage("b", "The barn burned down.", "Barn"),
    ]
)
WHO, WHAT = Query("q1", "who owned it"), Query("q2", "what burned")


def hits(*ids: str) -> list[Hit]:
    return [Hit(passage, -float(n)) for n, passage in enumerate(ids)]


def read_by(answer: Written) -> tuple[str, ...]:
    return tuple(name for quote in answer.quotes for name in quote.passages)


def steps_of(answer: Written) -> list[tuple[str, str]]:
    return [(piece.kind, piece.text) for piece in answer.pieces]


FINDS = ScriptedRetriever({WHO.text: hits("m", "o", "b"), WHAT.text: hits("b"), "what": hits("b")})


def test_the_first_k_passages_are_read_and_all_are_ranked() -> None:
    writer = ScriptedWriter(lambda text: "yes" if "Orla" in text else "no")
    first, second = DirectReader(writer, FINDS, CORPUS, 2, depth=3).answer([WHO, WHAT])
    assert writer.prompts == [
        [
            "passage: Mill: The mill was built in 1820.\npassage: Orla Finn owned the mill.\n"
            "question: who owned it\nanswer:",
            "passage: Barn: The barn burned down.\nquestion: what burned\nanswer:",
        ]
    ]
    assert (first.answer, read_by(first), writer.spent.cut) == ("yes", ("m", "o"), 0)
    assert first.ranking == tuple(hits("m", "o", "b"))
    assert (second.answer, read_by(second)) == ("no", ("b",))


def test_without_passages_to_read_the_question_stands_alone(caplog: Caplog) -> None:
    writer = ScriptedWriter(lambda text: "so")
    for source, ranking in ((None, ()), (FINDS, tuple(hits("m", "o", "b")))):
        read = DirectReader(writer, source, CORPUS, 0, depth=3).answer([WHO])[0]
        assert writer.prompts.pop() == ["question: who owned it\nanswer:"]
        assert (read.answer, read_by(read), read.ranking) == ("so", (), ranking)
    assert not caplog.records


def test_passages_without_room_are_left_out_from_the_end(caplog: Caplog) -> None:
    reader = DirectReader(ScriptedWriter(lambda text: "so"), None, CORPUS)
    lengths = [
        len(reader._prompt(WHO, CORPUS.passages(CORPUS.numbers(ids)))) for ids in ([], ["m"], ["m", "o"])
    ]
    cases = (lengths[2], ("m", "o"), 0), (lengths[2] - 1, ("m",), 1), (lengths[1] - 1, (), 2)
    for room, kept, cut in cases:
        caplog.clear()
        writer = ScriptedWriter(lambda text: "so", room)
        read = DirectReader(writer, FINDS, CORPUS, 2).answer([WHO])[0]
        assert (read_by(read), writer.spent.cut) == (kept, cut)
        assert ("left out, for the model has no room" in caplog.text) == bool(cut)
    shorter = Query("q0", "what")
    writer = ScriptedWriter(lambda text: "so", lengths[0] - 1)
    done: list[int] = []
    first, second = DirectReader(writer, FINDS, CORPUS, 1).answer([WHO, shorter], done.append)
    assert (first.answer, first.ended, first.quotes, first.ranking) == ("", False, (), tuple(hits("m")))
    assert first.failed.startswith(f"its prompt takes {lengths[0]} tokens")
    assert (second.answer, second.ended, second.failed) == ("so", True, "")
    assert done == [1, 1]
    assert f"'q1': its prompt takes {lengths[0]} tokens, but the model has room for" in caplog.text
    assert first.record(WHO)["failed"] == first.failed
    assert "failed" not in second.record(shorter)
    bare = lengths[0] - len(WHO.text)
    with pytest.raises(ConfigError, match=rf"{bare} tokens before anything is asked.* beside 8 new"):
        DirectReader(ScriptedWriter(lambda text: "so", bare - 1), None, CORPUS).answer([WHO])


SCRIPT = {
    "question: who owned it\n": "follow-up: what is it",
    "question: what burned\n": "Answer: the barn",
    "question: who owned it\nfollow-up: what is it\nevidence: Mill: The mill was built in 1820.\n":
        "Follow-up:  who owned the mill ",
    "question: who owned it\nfollow-up: what is it\nevidence: Mill: The mill was built in 1820.\n"
    "follow-up: who owned the mill\nevidence: Orla Finn owned the mill.\n": "so the answer: Orla Finn",
}  # fmt: skip
FOUND = {text: [("m", 0.0), ("o", -1.0)] for text in ("what is it", "who owned the mill")}


def test_each_follow_up_is_retrieved_for_until_the_answer() -> None:
    writer, retriever = ScriptedWriter(SCRIPT.__getitem__), ScriptedRetriever(FOUND)
    done: list[int] = []
    first, second = IterativeReader(writer, retriever, CORPUS).answer([WHO, WHAT], done.append)
    assert retriever.asked == [["what is it"], ["who owned the mill"]]
    assert steps_of(first) == [
        ("thought", "what is it"), ("quote", "Mill: The mill was built in 1820."),
        ("thought", "who owned the mill"), ("quote", "Orla Finn owned the mill."),  # m was shown
        ("answer", "Orla Finn"),
    ]  # fmt: skip
    assert first.ranking == (Hit("m", -1.0), Hit("o", -2.0))
    assert (first.answer, read_by(first)) == ("Orla Finn", ("m", "o"))
    assert (second.ranking, steps_of(second)) == ((), [("answer", "the barn")])
    assert [len(batch) for batch in writer.prompts] == [2, 1, 1]
    assert done == [1, 0, 1]


def test_behind_the_last_hop_the_answer_is_asked_for() -> None:
    writer = ScriptedWriter(lambda text: "mine" if text.endswith("answer:") else SCRIPT[text])
    retriever = ScriptedRetriever(FOUND)
    read = IterativeReader(writer, retriever, CORPUS, hops=1).answer([WHO])[0]
    assert writer.prompts[-1] == [
        "question: who owned it\nfollow-up: what is it\nevidence: Mill: The mill was built in 1820.\nanswer:"
    ]
    assert retriever.asked == [["what is it"]]
    assert (read.answer, len(writer.prompts)) == ("mine", 2)


def test_a_follow_up_that_finds_nothing_is_told(caplog: Caplog) -> None:
    writer = ScriptedWriter(lambda text: "answer: x" if "nothing was found" in text else "follow-up: why")
    with caplog.at_level(logging.WARNING):
        read = IterativeReader(writer, ScriptedRetriever({}), CORPUS).answer([WHO])[0]
    assert writer.prompts[-1] == ["question: who owned it\nfollow-up: why\nevidence: nothing was found\n"]
    assert (steps_of(read), read.ranking) == ([("thought", "why"), ("answer", "x")], ())
    assert "nothing was found for 1 follow-up question." in caplog.text
    assert "answered without evidence: 1 of 1 query" in caplog.text


def test_without_room_evidence_is_left_out_and_then_the_follow_up(caplog: Caplog) -> None:
    def reply(text: str) -> str:
        return "answer: mine" if "evidence" in text or text.endswith("answer:") else "follow-up: what is it"

    def last(room: int | None, k: int = 2) -> tuple[str, int, tuple[str, ...]]:
        writer = ScriptedWriter(reply, room)
        read = IterativeReader(writer, ScriptedRetriever(FOUND), CORPUS, k).answer([WHO])[0]
        assert read.answer == "mine"
        return writer.prompts[-1][0], writer.spent.cut, read_by(read)

    reader = IterativeReader(ScriptedWriter(reply), ScriptedRetriever(FOUND), CORPUS)
    from grls.answer.iterative import _State

    asked = "question: who owned it\nfollow-up: what is it\nevidence: Mill: The mill was built in 1820.\n"
    both = f"{asked}evidence: Orla Finn owned the mill.\n"
    plain = "question: who owned it\n"
    start = len(reader._prompt(_State(WHO, plain.strip()), forced=True))
    room = start + len(both) - len(plain)
    assert last(room) == (both, 0, ("m", "o"))
    assert last(room - 1) == (asked, 1, ("m",))
    less = start + len(asked) - len(plain) - 1
    assert last(less) == (f"{plain}answer:", 2, ())
    writer = ScriptedWriter(lambda text: "answer: x", start - 1)
    short = Query("q0", "what")
    retriever = ScriptedRetriever(FOUND)
    first, second = IterativeReader(writer, retriever, CORPUS).answer([WHO, short])
    assert (first.answer, first.ended, first.pieces) == ("", False, ())
    assert first.failed == f"its prompt takes {start} tokens, but the model has room for {start - 1} " \
        "beside 8 new ones"  # fmt: skip
    assert (second.answer, second.failed) == ("x", "")
    assert "nothing is written for the query 'q1'" in caplog.text
    raises(ConfigError, "tokens before anything is asked", last, start - len(WHO.text) - 1)


def test_a_finished_run_is_looked_up(tmp_path: Path) -> None:
    data = str(write_small(tmp_path / "data"))
    asked = Questions.read(data, "test", None, str(tmp_path / "x"))
    (first, second), ids = asked.queries, asked.corpus.ids([0, 1, 2])
    run = tmp_path / "r.jsonl"
    write_jsonl_run(run, [first], asked.corpus, "bm25", {first.id: hits(*ids)})
    found = FinishedRun(run, asked)
    assert [[hit.id for hit in row] for row in found.retrieve([second, first], 2)] == [[], ids[:2]]
    told = found.describe()
    assert (told.system, told.name, told.score_mode) == ("generator", "a finished run", "bm25")
    one = Questions.read(data, "test", 1, str(tmp_path / "x"))
    known = asked.corpus.fingerprint, fingerprint_queries(one.queries), data, "test"
    write_info(tmp_path / "r", RunInfo("bm25", "n", "single", *known, "bm25", limit=1))
    assert FinishedRun(run, one).describe().name == "n"
    fewer = r"the first 1 of split test\) answers fewer .* 2 asked; give limit=1"
    raises(MismatchError, fewer, FinishedRun, run, asked)
