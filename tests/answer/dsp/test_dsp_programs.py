"""Demonstrate-search-predict: what the programs ask, find, fuse and keep, with a scripted model."""

import json
import math
from typing import Any, NamedTuple

import pytest
from failing import raises

pytest.importorskip("dspy", reason="the extra dsp is not installed")

import dspy
from dsp_helpers import by_beginning, patient, retrieval, scripted

from grls.answer.dsp.calls import recorded_calls
from grls.answer.dsp.options import DemonstrationOptions as Demos
from grls.answer.dsp.options import ProgramOptions as Options
from grls.answer.dsp.programs import (
    Branch,
    Conversational,
    MultiHop,
    OpenQA,
    RetrieveThenRead,
    SelfAsk,
    Vanilla,
    answer_in_order,
    demonstrate,
    dspy_examples,
    inputs_of,
    right,
    settings,
    stops,
)
from grls.answer.dsp.retrieval import RetrievedPassage
from grls.data.types import Query
from grls.errors import ConfigError, DataError

P = {p: math.log(p) for p in (0.6, 0.5, 0.4, 0.3, 0.2, 0.1)}


def ran(program: Any, lm: Any, **inputs: str) -> tuple[Any, list[dict[str, Any]]]:
    with settings(lm, patient()), recorded_calls() as trace:
        found = program(**inputs)
    return found, trace


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
    found, steps = ran(MultiHop(search), lm, question="who")
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
    found, steps = ran(MultiHop(search, Options(rounds=5)), lm, question="who")
    assert ids(found.found) == ["a"]
    assert [step for step in steps if step["kind"] == "stop"] == [
        {"kind": "stop", "hop": 2, "queries": [said]}
    ]
    assert steps[-1]["inputs"]["context"] == ["known", "A: text a"]
    assert [stops(text) for text in ("N/A", "", "NASA", "n/a please")] == [True, True, False, False]


def test_the_first_hop_is_taken_for_the_question_itself() -> None:
    script = {"who -> Query": "N/A", "who -> Reasoning": "r\nAnswer: Ada"}
    lm, _ = scripted(by_beginning(script))
    found, steps = ran(MultiHop(retrieval({"who": [("d", -1.0)]}), Options(rounds=1)), lm, question="who")
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
    found, steps = ran(MultiHop(search, Options(queries=3)), lm, question="who")
    assert script.seeds == [1, 2, 3, 1, 2, 3, None]
    assert [(one.id, round(one.score, 6)) for one in found.found] == [("b", 1.0), ("a", 0.5)]  # 1 / place
    assert steps[3]["found"] == [["b", pytest.approx(0.9)], ["a", pytest.approx(0.6)]]
    assert steps[-2] == {"kind": "stop", "hop": 2, "queries": ["N/A", "N/A", "z"]}
    assert steps[-1]["inputs"]["context"][0] == "s1"  # the first draw's summary


def summaries(*scores: list[float]) -> Any:
    """A model that draws a summary and the query ``z`` a seed, with these log-probabilities."""

    def reply(asked: str, config: Any) -> Any:
        if asked.endswith("Query:"):
            return "x"
        if asked.endswith("Summary:"):
            return f"s{config.seed or 0}\nQuery: z", "stop", *scores[(config.seed or 1) - 1 : config.seed]
        return "r\nAnswer: Ada"

    return scripted(reply)


def test_the_likeliest_summary_by_the_mean_over_its_tokens_is_kept() -> None:
    """The second has the higher sum and the lower mean; without the option the first is kept."""
    lm, _ = summaries([-1.0, -1.0], [-1.5], [-0.5, -1.0, -1.0, -1.0])
    search = retrieval({"x": [("a", -1.0)], "z": [("b", -1.0)]})
    found, steps = ran(MultiHop(search, Options(queries=3, summary="likeliest")), lm, question="who")
    assert steps[-1]["inputs"]["context"][0] == "s3"
    drawn = [step["outputs"] for step in steps if step.get("signature") == "NextQuery"]
    assert [outputs["log_probability"] for outputs in drawn] == [-1.0, -1.5, -0.875]
    _, steps = ran(MultiHop(search, Options(queries=3)), lm, question="who")
    assert steps[-1]["inputs"]["context"][0] == "s1"
    assert "log_probability" not in steps[-3]["outputs"]  # not asked for
    assert found.answer == "Ada"


def test_a_model_without_log_probabilities_is_refused_where_they_decide() -> None:
    lm, _ = summaries([-1.0])  # the second draw has none
    search = retrieval({"x": [("a", -1.0)], "z": [("b", -1.0)]})
    with pytest.raises(ConfigError, match=r"local/script gives no log-probabilities .* summary=.first."):
        ran(MultiHop(search, Options(queries=2, summary="likeliest")), lm, question="who")
    assert ran(MultiHop(search, Options(summary="likeliest")), lm, question="who")[0].answer == "Ada"


def test_an_answer_from_passages_of_all_hops() -> None:
    script = {"who -> Query": "x", "who -> Summary": "s\nQuery: z", "who -> Reasoning": "r\nAnswer: Ada"}
    lm, _ = scripted(by_beginning(script))
    search = retrieval({"x": [("a", -1.0), ("b", -2.0)], "z": [("c", -1.0), ("d", -2.0)]})
    found, steps = ran(MultiHop(search, Options(passages=3)), lm, question="who")
    assert steps[-1]["inputs"]["context"] == ["s", "A: text a", "C: text c", "B: text b"]
    assert (ids(found.read), ids(found.found)) == (["a", "c", "b"], ["a", "c", "b", "d"])
    raises(ConfigError, "passages must be at least 1", Options, passages=0)


def test_open_questions_fuse_the_question_and_the_model_s_query() -> None:
    lm, _ = scripted(by_beginning({"who -> Query": "q", "who -> Reasoning": "r\nAnswer: Ada"}))
    search = retrieval({"who": [("a", P[0.4]), ("b", P[0.3])], "q": [("b", P[0.2]), ("c", P[0.1])]})
    found, steps = ran(OpenQA(search), lm, question="who")
    assert [(one.id, round(one.score, 9)) for one in found.found] == [("b", 0.5), ("a", 0.4)]
    assert steps[1]["queries"] == ["who", "q"]
    plain, steps = ran(OpenQA(search, Options(queries=0)), lm, question="who")
    assert (ids(plain.found), [step["kind"] for step in steps]) == (["a", "b"], ["retrieval", "lm"])
    raises(ConfigError, "queries must be at least 0", Options, queries=-1)


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


def test_rewrites_are_fused_with_the_question_as_it_stands() -> None:
    lm, _ = scripted(by_beginning({"she -> Query": "Ada", "she -> Reasoning": "r\nAnswer: yes",
                                   "who -> Reasoning": "r\nAnswer: Ada"}))  # fmt: skip
    search = retrieval({"Ada": [("c", P[0.4]), ("a", P[0.1])], "she": [("b", P[0.5]), ("c", P[0.3])]})
    program = Conversational(search, Options(fuse_question=True))
    found, steps = ran(program, lm, question="she", history="who\nAda")
    assert steps[1]["queries"] == ["Ada", "she"]
    assert [(one.id, round(one.score, 6)) for one in found.found] == [("c", 0.7), ("b", 0.5)]
    _, steps = ran(program, lm, question="who", history="")
    assert steps[0]["queries"] == ["who"]


def test_self_ask() -> None:
    follow = iter(["when?", "where?", "When?"])

    def reply(asked: str, config: Any) -> str:
        if asked.endswith("Follow up:"):
            return next(follow)
        return {"Question: when?": "1820", "Question: where?": "here"}.get(asked.splitlines()[-2], "done")

    lm, script = scripted(reply)
    search = retrieval({"when?": [("a", -1.0)], "where?": [("b", -1.0)]})
    found, steps = ran(SelfAsk(search, Options(rounds=4)), lm, question="who")
    assert (found.answer, ids(found.found)) == ("done", ["a", "b"])
    assert steps[-2] == {"kind": "stop", "hop": 3, "queries": ["When?"]}  # asked before
    assert script.prompts[-1].endswith("Known:\n[1] when? 1820\n[2] where? here\nAnswer:")
    known = [step["inputs"]["known"] for step in steps if step["kind"] == "lm" and "known" in step["inputs"]]
    assert known[:2] == [[], ["when? 1820"]]  # as they were when the step was taken
    assert ran(Vanilla(), lm, question="who")[0].found == []


def test_branches_take_the_majority() -> None:
    said = {1000: "Ada", 2000: "the barn.", 3000: "barn"}
    lm, script = scripted(lambda asked, config: said[config.seed])
    three = Branch(Vanilla(), Options(branches=3))
    found, steps = ran(three, lm, question="who")
    assert found.answer == "the barn."  # the first of those that agree
    assert script.seeds == [1000, 2000, 3000]
    assert steps[-1] == {"kind": "majority", "answers": ["Ada", "the barn.", "barn"], "answer": "the barn."}
    said[3000] = "mill"
    assert ran(three, lm, question="who")[0].answer == "Ada"  # a tie: the earliest
    raises(ConfigError, "branches must be at least 1", Options, branches=0)
    raises(ConfigError, "temperature must be above 0", Options, temperature=0.0)


def test_a_branch_that_fails_is_left_out() -> None:
    said: dict[int, Any] = {1000: dspy.lm15.TimeoutError("slow"), 2000: "Ada"}
    lm, _ = scripted(lambda asked, config: said[config.seed])
    found, steps = ran(Branch(Vanilla(), Options(branches=2)), lm, question="who")
    assert found.answer == "Ada"
    assert steps[1]["failed"].startswith("LMTimeoutError")
    said[2000] = said[1000]
    with pytest.raises(dspy.LMTimeoutError):
        ran(Branch(Vanilla(), Options(branches=2)), lm, question="who")


class Read(NamedTuple):
    answer: str
    read: tuple[RetrievedPassage, ...]


QUERIES = [
    Query("1", "who owned the mill", answers=("Orla Finn", "Finn")),
    Query("2", "what was red", answers=("the barn",)), Query("3", "who owned the barn", answers=("Ida",)),
]  # fmt: skip


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
        taught = demonstrate(OpenQA(search), Demos("bootstrap", count=1), dspy_examples(QUERIES))
    assert [demo.question for demo in taught.query.demos] == ["what was red"]
    (demo,) = taught.answer.predict.demos
    assert (demo.answer, demo.reasoning, demo.context) == ("The Barn!", "as it says", ["B: text b"])
    script.prompts.clear()
    ran(taught, lm, question="why")
    assert script.prompts[0].split("\n\n")[1:] == [
        "Question: what was red\nQuery: find what was red", "Question: why\nQuery:",
    ]  # fmt: skip
    assert "Question: what was red\nReasoning: as it says\nAnswer: The Barn!\n\n" in script.prompts[1]


READ = Read("", (RetrievedPassage("a", "Mill: the mill of Orla Finn burned down", 1.0),))


@pytest.mark.parametrize(
    ("keep", "answer", "accepted", "expected"),
    [
        ("answer", "Ida", "Ida", True),
        ("passage", "Ida", "Ida", False),  # no passage has it
        ("passage", "orla finn", "Orla Finn", True),
        ("passage", "Orla", "Orla Finn", False),  # a passage has it, and it is another answer
        ("passage", "Finn Orla", "Finn Orla", False),  # the words of a passage, not in its order
        ("overlap", "Finn Orla", "Finn Orla", True),
        ("overlap", "mill Orla Finn", "Orla Finn mill burned down", True),  # F1 6 / 8
        ("overlap", "mill Orla", "Orla Finn mill burned down", False),  # F1 4 / 7
        (
            "overlap",
            "Orla Finn mill burned it",
            "Orla Finn mill burned it",
            True,
        ),  # 4 of 5 words in the passage
        ("overlap", "Orla Finn burned it", "Orla Finn burned it", False),  # 3 of 4
    ],
)
def test_which_examples_are_kept(keep: Any, answer: str, accepted: str, expected: bool) -> None:
    example = dspy_examples([Query("1", "who", answers=(accepted,))])[0]
    assert right(example, READ._replace(answer=answer), keep=keep) is expected


def test_labeled_examples_fill_up_the_demonstrations() -> None:
    lm, _ = scripted(lambda asked, config: "Finn" if "mill" in asked else "?")
    with settings(lm, patient()):
        taught = demonstrate(Vanilla(), Demos("bootstrap", count=1, labeled=1), dspy_examples(QUERIES))
    assert [demo.answer for demo in taught.answer.demos] in (["Finn", "the barn"], ["Finn", "Ida"])
    raises(ConfigError, r"labeled must be at least 0, got -1", Demos, "bootstrap", labeled=-1)


def test_an_example_without_an_answer_is_right_where_its_evidence_is_found() -> None:
    lm, _ = scripted(lambda asked, config: "whatever")
    search = retrieval({"one": [("a", -1.0), ("b", -2.0)], "two": [("a", -1.0), ("c", -2.0)]})
    train = dspy_examples([Query("1", "one", ("a", "c")), Query("2", "two", ("a", "c")), Query("3", "three")])
    with settings(lm, patient()):
        taught = demonstrate(RetrieveThenRead(search), Demos("bootstrap", count=2), train)
    assert [demo.question for demo in taught.answer.demos] == ["two"]
    with pytest.raises(ConfigError, match="no example has an answer"):
        demonstrate(RetrieveThenRead(search), Demos("labeled"), train)


def test_demonstrations_of_the_nearest_examples() -> None:
    answers = {query.text: query.answers[0] for query in QUERIES} | {"who owned the mill now": "Eve"}
    lm, script = scripted(lambda asked, config: answers[asked.splitlines()[0][10:]])
    with settings(lm, patient()):
        taught = demonstrate(Vanilla(), Demos("nearest", count=1), dspy_examples(QUERIES))
        assert taught(question="who owned the mill now").answer == "Eve"
    assert "Question: who owned the mill\nAnswer: Orla Finn\n\n" in script.prompts[-1]
    assert "red" not in script.prompts[-1]


def test_labeled_and_searched_demonstrations() -> None:
    lm, script = scripted(
        lambda asked, config: "Finn" if "mill" in asked or "\n\n" in script.prompts[-1][60:] else "?"
    )
    with settings(lm, patient()):
        labeled = demonstrate(Vanilla(), Demos("labeled", count=2), dspy_examples(QUERIES))
        assert [demo.question for demo in labeled.answer.demos] == ["who owned the mill", "what was red"]
        four = [*QUERIES, Query("4", "who else", answers=("Finn",))]
        best = demonstrate(Vanilla(), Demos("search", count=1), dspy_examples(four), candidates=1)
        assert best.answer.demos  # without a demonstration, the held-out example is not answered
        raises(ConfigError, "2 examples", demonstrate, Vanilla(), Demos("search"), dspy_examples(QUERIES[:1]))
        assert demonstrate(best, Demos("none"), []) is best


def test_what_a_program_is_given() -> None:
    raises(DataError, "no query", dspy_examples, [Query("1", "who")])
    talk = Query("1", "and she", metadata='{"history": [["who", "Ada"], "so"]}')
    assert inputs_of(talk) == {"question": "and she"}
    assert inputs_of(talk, history=True) == {"question": "and she", "history": "who\nAda\nso"}
    assert inputs_of(Query("1", "who"), history=True)["history"] == ""
    for wrong in ('{"history": "who"}', '{"history": [1]}', '{"history": [[1]]}'):
        with pytest.raises(DataError, match=r"metadata\.history of the query '1'"):
            inputs_of(Query("1", "who", metadata=wrong), history=True)


def test_conversations_go_on_from_the_systems_own_answers(caplog: pytest.LogCaptureFixture) -> None:
    def turn(name: str, text: str, *history: list[str]) -> Query:
        return Query(name, text, metadata=json.dumps({"history": history}))

    first, gold = turn("a1", "who"), ["who", "Ada"]
    queries = [turn("a3", "why", gold, ["and she", "so"]), turn("a2", "and she", gold), first,
               turn("b2", "how", ["what", "that"])]  # fmt: skip
    rounds: list[dict[str, dict[str, str]]] = []

    def answer(inputs: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
        rounds.append(inputs)
        said = {"a1": "Grace", "a2": ""}
        return [{"query_id": name, "answer": said.get(name, name)} for name in reversed(inputs)]

    records = answer_in_order(queries, answer)
    assert [record["query_id"] for record in records] == ["a3", "a2", "a1", "b2"]
    assert [sorted(inputs) for inputs in rounds] == [["a1"], ["a2", "b2"], ["a3"]]
    histories = {name: fields["history"] for inputs in rounds for name, fields in inputs.items()}
    assert histories == {"a1": "", "a2": "who\nGrace", "a3": "who\nGrace\nand she", "b2": "what\nthat"}
    assert "1 earlier question of conversations is not among those asked" in caplog.text

    def broken(inputs: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
        rounds.append(inputs)
        return [{"query_id": name, "answer": "", "failed": "timeout"} for name in inputs]

    rounds.clear()
    records = answer_in_order(queries, broken)
    assert [sorted(inputs) for inputs in rounds] == [["a1"], ["b2"], []]
    assert [record["failed"] for record in records[1:3]] == [
        "an earlier question of its conversation failed", "timeout",
    ]  # fmt: skip
    assert records[0]["found"] == records[0]["read"] == records[0]["trace"] == []
