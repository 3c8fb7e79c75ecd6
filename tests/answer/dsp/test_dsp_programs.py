"""Demonstrate-search-predict: what the programs ask, find, fuse and keep, with a scripted model."""

import math
from typing import Any

import pytest

pytest.importorskip("dspy", reason="the extra dsp is not installed")

import dspy
from dsp_helpers import CORPUS, ScriptedRetriever, by_beginning, patient, retrieval, scripted

from grls.answer.dsp.baselines import RetrieveThenRead, SelfAsk, Vanilla
from grls.answer.dsp.branch import Branch
from grls.answer.dsp.build import program_named
from grls.answer.dsp.demonstrate import demonstrate, dspy_examples, inputs_of
from grls.answer.dsp.programs import Conversational, MultiHop, OpenQA, stops
from grls.answer.dsp.retrieval import Retrieval
from grls.answer.dsp.run import settings
from grls.answer.dsp.trace import recorded_calls
from grls.data.types import Query
from grls.errors import ConfigError, DataError

P = {p: math.log(p) for p in (0.6, 0.5, 0.4, 0.3, 0.2, 0.1)}


def ran(program: Any, lm: Any, **inputs: str) -> tuple[Any, list[dict[str, Any]]]:
    with settings(lm, patient()), recorded_calls() as trace:
        found = program(**inputs)
    return found, trace.steps


def ids(found: Any) -> list[str]:
    return [one.id for one in found]


def test_two_hops() -> None:
    lm, script = scripted(
        by_beginning({
            "who -> Query": "first",
            "who -> Summary": "a is b\nQuery: second",
            "who -> Reasoning": "so it is\nAnswer: Ada",
        })
    )  # fmt: skip
    search = retrieval({"first": [("a", P[0.6]), ("b", P[0.4])], "second": [("c", P[0.5]), ("a", P[0.1])]})
    found, steps = ran(MultiHop(search, hops=2), lm, question="who")
    assert found.answer == "Ada"
    assert ids(found.found) == ["a", "c", "b"]  # the best of each hop in turn
    assert ids(found.read) == ["a", "c", "b"]
    assert [step["kind"] for step in steps] == ["lm", "retrieval", "lm", "retrieval", "lm"]
    assert steps[1] == {"kind": "retrieval", "queries": ["first"], "found": [["a", P[0.6]], ["b", P[0.4]]]}
    assert steps[2]["inputs"] == {"notes": [], "context": ["A: text a", "B: text b"], "question": "who"}
    assert steps[2]["outputs"] == {"summary": "a is b", "query": "second"}
    assert steps[3]["queries"] == ["second"]
    assert steps[4]["inputs"]["context"] == ["a is b", "C: text c", "A: text a"]  # notes, then the last hop
    assert script.prompts[2].endswith(
        "Context:\n[1] a is b\n[2] C: text c\n[3] A: text a\nQuestion: who\nReasoning:"
    )


@pytest.mark.parametrize("said", ["N/A", "n/a.", '"N/A"'])
def test_hops_stop_at_na(said: str) -> None:
    lm, _ = scripted(
        by_beginning({
            "who -> Query": "first",
            "who -> Summary": f"known\nQuery: {said}",
            "who -> Reasoning": "r\nAnswer: Ada",
        })
    )  # fmt: skip
    search = retrieval({"first": [("a", -1.0)], said: [("f", -1.0)]})
    found, steps = ran(MultiHop(search, hops=5), lm, question="who")
    assert ids(found.found) == ["a"]
    assert [step for step in steps if step["kind"] == "stop"] == [
        {"kind": "stop", "hop": 2, "queries": [said]}
    ]
    assert steps[-1]["inputs"]["context"] == ["known", "A: text a"]
    assert [stops(text) for text in ("N/A", "", "NASA", "n/a please")] == [True, True, False, False]


def test_the_first_hop_is_taken_for_the_question_itself() -> None:
    script = {"who -> Query": "N/A", "who -> Reasoning": "r\nAnswer: Ada"}
    lm, _ = scripted(by_beginning(script))
    found, steps = ran(MultiHop(retrieval({"who": [("d", -1.0)]}), hops=1), lm, question="who")
    assert (ids(found.found), steps[1]["queries"]) == (["d"], ["who"])


def test_several_queries_of_a_hop_are_drawn_and_fused_and_half_of_them_stop() -> None:
    drawn = {1: "x", 2: "y", 3: "x"}

    def reply(asked: str, config: Any) -> str:
        if asked.endswith("Query:"):
            return drawn[config.seed]
        if asked.endswith("Summary:"):
            return f"s{config.seed}\nQuery: {'N/A' if config.seed < 3 else 'z'}"
        return "r\nAnswer: Ada"

    lm, script = scripted(reply)
    search = retrieval({"x": [("a", P[0.3]), ("b", P[0.2])], "y": [("b", P[0.5])]})
    found, steps = ran(MultiHop(search, hops=2, queries=3), lm, question="who")
    assert script.seeds == [1, 2, 3, 1, 2, 3, None]
    assert [(one.id, round(one.score, 6)) for one in found.found] == [("b", 1.0), ("a", 0.5)]  # 1 / place
    assert steps[3]["found"] == [["b", pytest.approx(0.9)], ["a", pytest.approx(0.6)]]
    assert steps[-2] == {"kind": "stop", "hop": 2, "queries": ["N/A", "N/A", "z"]}
    assert steps[-1]["inputs"]["context"][0] == "s1"  # the first draw's summary


@pytest.mark.parametrize(("drawn", "hops"), [(["N/A", "z"], 1), (["N/A", "z", "z"], 2)])
def test_a_hop_is_taken_where_more_than_half_of_the_drawn_queries_are(drawn: list[str], hops: int) -> None:
    def reply(asked: str, config: Any) -> str:
        if asked.endswith("Query:"):
            return "x"
        return f"s\nQuery: {drawn[config.seed - 1]}" if asked.endswith("Summary:") else "r\nAnswer: Ada"

    lm, _ = scripted(reply)
    search = retrieval({"x": [("a", -1.0)], "z": [("b", -1.0)]})
    found, steps = ran(MultiHop(search, hops=2, queries=len(drawn)), lm, question="who")
    assert ids(found.found) == ["a", "b"][:hops]
    assert [step["queries"] for step in steps if step["kind"] == "retrieval"][1:] == [["z", "z"]][: hops - 1]


def test_open_questions_fuse_the_question_and_the_model_s_query() -> None:
    lm, _ = scripted(by_beginning({"who -> Query": "q", "who -> Reasoning": "r\nAnswer: Ada"}))
    search = retrieval({"who": [("a", P[0.4]), ("b", P[0.3])], "q": [("b", P[0.2]), ("c", P[0.1])]})
    found, steps = ran(OpenQA(search), lm, question="who")
    assert [(one.id, round(one.probability, 9)) for one in found.found] == [("b", 0.5), ("a", 0.4)]
    assert steps[1]["queries"] == ["who", "q"]
    plain, steps = ran(OpenQA(search, queries=0), lm, question="who")
    assert (ids(plain.found), [step["kind"] for step in steps]) == (["a", "b"], ["retrieval", "lm"])
    with pytest.raises(ConfigError, match="at least 1"):
        OpenQA(search, queries=-1)


def test_nothing_found_is_told_to_the_model() -> None:
    lm, script = scripted(by_beginning({"who -> Answer": "no idea"}))
    found, steps = ran(RetrieveThenRead(retrieval({})), lm, question="who")
    assert (found.answer, found.found, steps[0]["found"]) == ("no idea", [], [])
    assert script.prompts[0].endswith("Context:\n[1] nothing was found\nQuestion: who\nAnswer:")


def test_a_conversation_is_rewritten_but_for_its_first_question() -> None:
    script = {"and she -> Query": "did Ada swim", "and she -> Reasoning": "r\nAnswer: yes",
              "who -> Reasoning": "r\nAnswer: Ada"}  # fmt: skip
    lm, _ = scripted(by_beginning(script))
    search = retrieval({"did Ada swim": [("c", -1.0)], "who": [("a", -1.0)]})
    program = Conversational(search)
    found, steps = ran(program, lm, question="and she", history="who\nAda")
    assert (found.answer, ids(found.found), steps[1]["queries"]) == ("yes", ["c"], ["did Ada swim"])
    assert steps[0]["inputs"] == {"history": "who\nAda", "question": "and she"}
    found, steps = ran(program, lm, question="who", history="")
    assert (found.answer, [step["kind"] for step in steps]) == ("Ada", ["retrieval", "lm"])


def test_self_ask() -> None:
    follow = iter(["when?", "where?", "When?"])

    def reply(asked: str, config: Any) -> str:
        if asked.endswith("Follow up:"):
            return next(follow)
        return {"Question: when?": "1820", "Question: where?": "here"}.get(asked.splitlines()[-2], "done")

    lm, script = scripted(reply)
    search = retrieval({"when?": [("a", -1.0)], "where?": [("b", -1.0)]})
    found, steps = ran(SelfAsk(search, hops=4), lm, question="who")
    assert (found.answer, ids(found.found)) == ("done", ["a", "b"])
    assert steps[-2] == {"kind": "stop", "hop": 3, "queries": ["When?"]}  # asked before
    assert script.prompts[-1].endswith("Known:\n[1] when? 1820\n[2] where? here\nAnswer:")
    known = [step["inputs"]["known"] for step in steps if step["kind"] == "lm" and "known" in step["inputs"]]
    assert known[:2] == [[], ["when? 1820"]]  # as they were when the step was taken
    assert ran(Vanilla(), lm, question="who")[0].found == []


def test_branches_take_the_majority() -> None:
    said = {1000: "Ada", 2000: "the barn.", 3000: "barn"}
    lm, script = scripted(lambda asked, config: said[config.seed])
    found, steps = ran(Branch(Vanilla(), 3), lm, question="who")
    assert found.answer == "the barn."  # the first of those that agree
    assert script.seeds == [1000, 2000, 3000]
    assert steps[-1] == {"kind": "majority", "answers": ["Ada", "the barn.", "barn"], "answer": "the barn."}
    said[3000] = "mill"
    assert ran(Branch(Vanilla(), 3), lm, question="who")[0].answer == "Ada"  # a tie: the earliest
    with pytest.raises(ConfigError, match="at least 1 branch"):
        Branch(Vanilla(), 0)


def test_a_branch_that_fails_is_left_out() -> None:
    said: dict[int, Any] = {1000: dspy.lm15.TimeoutError("slow"), 2000: "Ada"}
    lm, _ = scripted(lambda asked, config: said[config.seed])
    found, steps = ran(Branch(Vanilla(), 2), lm, question="who")
    assert found.answer == "Ada"
    assert steps[1]["failed"].startswith("LMTimeoutError")
    said[2000] = said[1000]
    with pytest.raises(dspy.LMTimeoutError):
        ran(Branch(Vanilla(), 2), lm, question="who")


QUERIES = [
    Query("1", "who owned the mill", answers=("Orla Finn", "Finn")),
    Query("2", "what was red", answers=("the barn",)),
    Query("3", "who owned the barn", answers=("Ida",)),
]


def test_only_a_rightly_answered_example_becomes_a_demonstration() -> None:
    answers = {"who owned the mill": "Ada", "what was red": "The Barn!", "who owned the barn": "Ida"}

    def reply(asked: str, config: Any) -> str:
        question = next(line for line in asked.splitlines() if line.startswith("Question: "))[10:]
        if asked.endswith("Query:"):
            return f"find {question}"
        return f"as it says\nAnswer: {answers.get(question, 'new')}"

    lm, script = scripted(reply)
    search = retrieval({"what was red": [("b", -1.0)], "who owned the barn": [("c", -1.0)]}, k=1)
    with settings(lm, patient()):
        taught = demonstrate(OpenQA(search), "bootstrap", dspy_examples(QUERIES), demos=1)
    assert [demo.question for demo in taught.query.demos] == ["what was red"]
    (demo,) = taught.answer.predict.demos
    assert (demo.answer, demo.reasoning, demo.context) == ("The Barn!", "as it says", ["B: text b"])
    script.prompts.clear()
    ran(taught, lm, question="why")
    assert script.prompts[0].split("\n\n")[1:] == [
        "Question: what was red\nQuery: find what was red",
        "Question: why\nQuery:",
    ]
    assert "Question: what was red\nReasoning: as it says\nAnswer: The Barn!\n\n" in script.prompts[1]


def test_an_example_without_an_answer_is_right_where_its_evidence_is_found() -> None:
    lm, _ = scripted(lambda asked, config: "whatever")
    search = retrieval({"one": [("a", -1.0), ("b", -2.0)], "two": [("a", -1.0), ("c", -2.0)]})
    train = dspy_examples([Query("1", "one", ("a", "c")), Query("2", "two", ("a", "c")), Query("3", "three")])
    with settings(lm, patient()):
        taught = demonstrate(RetrieveThenRead(search), "bootstrap", train, demos=2)
    assert [demo.question for demo in taught.answer.demos] == ["two"]
    with pytest.raises(ConfigError, match="no example has an answer"):
        demonstrate(RetrieveThenRead(search), "labeled", train)


def test_demonstrations_of_the_nearest_examples() -> None:
    answers = {query.text: query.answers[0] for query in QUERIES} | {"who owned the mill now": "Eve"}
    lm, script = scripted(lambda asked, config: answers[asked.splitlines()[0][10:]])
    with settings(lm, patient()):
        taught = demonstrate(Vanilla(), "nearest", dspy_examples(QUERIES), demos=1)
        assert taught(question="who owned the mill now").answer == "Eve"
    assert "Question: who owned the mill\nAnswer: Orla Finn\n\n" in script.prompts[-1]
    assert "red" not in script.prompts[-1]


def test_labeled_and_searched_demonstrations() -> None:
    lm, script = scripted(
        lambda asked, config: "Finn" if "mill" in asked or "\n\n" in script.prompts[-1][60:] else "?"
    )
    with settings(lm, patient()):
        labeled = demonstrate(Vanilla(), "labeled", dspy_examples(QUERIES), demos=2)
        assert [demo.question for demo in labeled.answer.demos] == ["who owned the mill", "what was red"]
        four = [*QUERIES, Query("4", "who else", answers=("Finn",))]
        best = demonstrate(Vanilla(), "search", dspy_examples(four), demos=1, candidates=1)
        assert best.answer.demos  # without a demonstration, the held-out example is not answered
        with pytest.raises(ConfigError, match="2 examples"):
            demonstrate(Vanilla(), "search", dspy_examples(QUERIES[:1]))
        assert demonstrate(best, "none", []) is best


def test_what_a_program_is_given() -> None:
    with pytest.raises(DataError, match="no query"):
        dspy_examples([Query("1", "who")])
    talk = Query("1", "and she", metadata='{"history": [["who", "Ada"], "so"]}')
    assert inputs_of(talk) == {"question": "and she"}
    assert inputs_of(talk, history=True) == {"question": "and she", "history": "who\nAda\nso"}
    assert inputs_of(Query("1", "who"), history=True)["history"] == ""
    for wrong in ('{"history": "who"}', '{"history": [1]}', '{"history": [[1]]}'):
        with pytest.raises(DataError, match=r"metadata\.history of the query '1'"):
            inputs_of(Query("1", "who", metadata=wrong), history=True)


def test_programs_by_name() -> None:
    with pytest.raises(ConfigError, match="multihop retrieves"):
        program_named("multihop", None, 2, 1, 0.7)
    with pytest.raises(ConfigError, match="unknown program"):
        program_named("x", Retrieval(ScriptedRetriever({}), CORPUS), 2, 1, 0.7)
