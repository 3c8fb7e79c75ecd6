"""Demonstrate-search-predict: templates, failures, traces, resuming, demonstrations, retrievers."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from fixture_types import Caplog

pytest.importorskip("dspy", reason="the extra dsp is not installed")

import dspy
from dsp_helpers import CORPUS, patient, retrieval, scripted
from failing import raises
from reader_helpers import ScriptedRetriever

from grls.answer.dsp.calls import cost_of, note, recorded_calls
from grls.answer.dsp.lm import APART, LinesAdapter, _fields, adapter_named
from grls.answer.dsp.options import DemonstrationOptions as Demos
from grls.answer.dsp.programs import (
    MultiHop,
    RetrieveThenRead,
    Vanilla,
    answer_all,
    demonstrated,
    dspy_examples,
    refuse_other,
    settings,
)
from grls.answer.dsp.retrieval import Retrieval, RetrievedPassage
from grls.data.types import Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.work import GrowingFile


def test_the_plain_template() -> None:
    class Sum(dspy.Signature):
        """Do it."""

        question: str = dspy.InputField()
        notes: list[str] = dspy.InputField()
        first_part: str = dspy.OutputField()
        last_part: str = dspy.OutputField()

    demo = {"question": "one\n\ntwo", "notes": ["n  1", "n2"], "last_part": "done", "other": "x"}
    prompt = LinesAdapter().prompt(
        Sum, [demo, {"question": "unsolved"}], {"question": "q", "notes": []}, "first_part"
    )
    assert prompt == (
        "Do it.\n\nQuestion: one\ntwo\nNotes:\n[1] n 1\n[2] n2\nLast part: done\n\nQuestion: q\nFirst part:"
    )
    names = ["first_part", "last_part"]
    assert _fields(names, " a\nb\nlast part: c\n\nLast part: d") == {"first_part": "a b", "last_part": "c"}
    assert _fields(names, "First part: a") == {"first_part": "a"}


def test_a_field_that_is_left_out_is_asked_for() -> None:
    replies = iter(["because", "Ada", "", "because"])
    lm, script = scripted(lambda asked, config: next(replies))
    program = dspy.ChainOfThought("question -> answer")
    with settings(lm, patient()):
        assert program(question="who").answer == "Ada"
        assert script.prompts[1].endswith("Question: who\nReasoning: because\nAnswer:")
        raises(dspy.AdapterParseError, "reasoning", program, question="who")


def test_nonsense_is_asked_again_at_a_temperature() -> None:
    said: Iterator[Any] = iter(["", "", "Ada"])
    asked: list[Any] = []

    def reply(text: str, config: Any) -> Any:
        asked.append((config.temperature, config.seed))
        return next(said)

    lm, _ = scripted(reply)
    with settings(lm, patient(3)), recorded_calls() as trace:
        assert Vanilla()(question="who").answer == "Ada"
    assert asked == [(None, None), (0.7, APART), (0.7, 2 * APART)]
    assert [step.get("failed", "").split(":")[0] for step in trace] == [
        "AdapterParseError", "AdapterParseError", ""]  # fmt: skip
    assert cost_of(trace) == {"calls": 3, "tokens_read": 30, "tokens_written": 6, "retrievals": 0}


def test_every_answered_call_is_in_the_trace_with_what_it_served_and_what_it_cost() -> None:
    replies: Iterator[Any] = iter(["a is b", "", " b\nQuery: c ", "so it is\nAnswer: Ada \n\nmore"])
    lm, script = scripted(lambda text, config: next(replies))
    program = MultiHop(retrieval({"a is b": [("a", -1.0)], "c": [("b", -1.0)]}))
    program.load_state(program.dump_state())  # as with demonstrations of a file
    with settings(lm, patient(4)), recorded_calls() as trace:
        assert program(question="who").answer == "Ada"
    steps = [step for step in trace if step["kind"] == "lm"]
    assert [step["signature"] for step in steps] == ["SearchQuery", "NextQuery", "NextQuery", "Answer"]
    assert [len(step["calls"]) for step in steps] == [1, 1, 1, 1]
    calls = [call for step in steps for call in step["calls"]]
    assert [call["prompt"] for call in calls] == script.prompts
    said = [call["output"] for call in calls]
    assert said == ["a is b", "", " b\nQuery: c ", "so it is\nAnswer: Ada \n\nmore"]  # as it came
    assert [call["tokens_read"] for call in calls] == [10, 10, 10, 10]
    assert cost_of(trace)["tokens_read"] == 40
    assert lm.history == dspy.clients.base_lm.GLOBAL_HISTORY == []  # the trace alone keeps them


def test_an_output_that_was_cut_says_so(tmp_path: Path) -> None:
    said = {"q1": ("Ada Love", "length"), "q2": "Ada", "q3": ("", "length")}
    lm, _ = scripted(lambda asked, config: said[asked.splitlines()[-2].removeprefix("Question: ")])
    records = answer_all(Vanilla(), ASKED, lm, patient(), GrowingFile(tmp_path / "x.jsonl", {}), 1)
    assert [record.get("ended") for record in records] == [False, True, None]
    assert [record["trace"][0]["calls"][0].get("cut") for record in records] == [True, None, True]
    assert records[2]["failed"] == (
        "AdapterParseError: no field can be read from '', which was cut at the length limit"
    )
    header = "[[ ## answer ## ]]\n"
    lm, _ = scripted(lambda asked, config: (f"{header}Ada Love", "length"))
    file = GrowingFile(tmp_path / "y.jsonl", {})
    (record,) = answer_all(Vanilla(), {"q1": ASKED["q1"]}, lm, adapter_named("chat", 1), file, 1)
    assert (record["answer"], record["ended"]) == ("Ada Love", False)


ASKED = {name: {"question": name} for name in ("q1", "q2", "q3")}


def test_a_query_that_fails_is_recorded_and_tried_anew(tmp_path: Path) -> None:
    said: dict[str, Any] = {"q1": "one", "q2": dspy.lm15.TimeoutError("slow"), "q3": "three"}
    lm, script = scripted(lambda asked, config: said[asked.splitlines()[-2].removeprefix("Question: ")])
    source = ScriptedRetriever({"q1": [("a", -1.0)], "q2": [("b", -2.0)]})
    program = RetrieveThenRead(Retrieval(source, CORPUS))
    file = GrowingFile(tmp_path / "x.jsonl", {"a": 1})
    done: list[int] = []
    records = answer_all(program, ASKED, lm, patient(2), file, 2, done.append)
    assert [record["answer"] for record in records] == ["one", "", "three"]
    assert records[1]["failed"] == "LMTimeoutError: [local/script] slow"
    assert records[1]["trace"][0] == {"kind": "retrieval", "queries": ["q2"], "found": [["b", -2.0]]}
    assert records[1]["cost"] == {"calls": 0, "tokens_read": 0, "tokens_written": 0, "retrievals": 1}
    assert records[0]["cost"] == {"calls": 1, "tokens_read": 10, "tokens_written": 2, "retrievals": 1}
    assert [record["found"] for record in records] == [[["a", -1.0]], [["b", -2.0]], []]  # failed, too
    assert sum(done) == 3
    said["q2"] = "two"
    script.prompts.clear()
    file.close()
    again = answer_all(program, ASKED, lm, patient(), GrowingFile(tmp_path / "x.jsonl", {"a": 1}))
    assert [record["answer"] for record in again] == ["one", "two", "three"]
    assert len(script.prompts) == 1


def test_a_refused_key_ends_the_run_and_keeps_what_was_answered(tmp_path: Path) -> None:
    said: dict[str, Any] = {"q1": "one", "q2": dspy.lm15.AuthError("bad key"), "q3": "three"}
    lm, _ = scripted(lambda asked, config: said[asked.splitlines()[-2].removeprefix("Question: ")])
    file = GrowingFile(tmp_path / "x.jsonl", {})
    with pytest.raises(ConfigError, match=r"cannot be asked at all .*bad key"):
        answer_all(Vanilla(), ASKED, lm, patient(), file, 1)
    answered = [record["query_id"] for record in file]
    assert "q1" in answered
    assert "q2" not in answered


def test_threads_do_not_mix_their_traces(tmp_path: Path) -> None:
    lm, _ = scripted(lambda asked, config: sleep(0.001) or "to " + asked.splitlines()[-2][10:])
    asked = {f"q{n}": {"question": f"q{n}"} for n in range(20)}
    records = answer_all(Vanilla(), asked, lm, patient(), GrowingFile(tmp_path / "x.jsonl", {}), 6)
    for name, record in zip(asked, records, strict=True):
        assert (record["query_id"], record["answer"]) == (name, f"to {name}")
        (step,) = record["trace"]
        assert (step["kind"], step["signature"], step["inputs"]) == ("lm", "Ask", {"question": name})
        assert step["outputs"] == {"answer": f"to {name}"}
        assert [call["prompt"].split()[-2] for call in step["calls"]] == [name]
    note("nothing")  # outside of a record: nothing happens


def test_demonstrations_are_kept_in_a_file(tmp_path: Path) -> None:
    lm, script = scripted(lambda asked, config: "Ada")
    train = dspy_examples([Query("1", "who", answers=("Ada",))])
    file = tmp_path / "demos.json"
    with settings(lm, patient()):
        demonstrated(Vanilla(), Demos("bootstrap", count=1), train, 1, file, {"a": 1})
        asked = len(script.prompts)
        again = demonstrated(Vanilla(), Demos("bootstrap", count=1), train, 1, file, {"a": 1})
        assert len(script.prompts) == asked
        assert [demo["answer"] for demo in again.answer.demos] == ["Ada"]
        assert again(question="why").answer == "Ada"
        assert "Question: who\nAnswer: Ada\n\n" in script.prompts[-1]
        with pytest.raises(MismatchError, match="other settings"):
            demonstrated(Vanilla(), Demos("bootstrap", count=1), train, 1, file, {"a": 2})
        with pytest.raises(DataError, match="no demonstrations of this program"):
            demonstrated(dspy.Predict("a -> b"), Demos("bootstrap", count=1), train, 1, file, {"a": 1})


@pytest.mark.parametrize("how", ["bootstrap", "search"])
def test_a_model_that_fails_for_all_examples_makes_no_demonstrations(how: Any, tmp_path: Path) -> None:
    lm, _ = scripted(lambda asked, config: dspy.lm15.AuthError("bad key"))
    train = dspy_examples([Query(name, f"who {name}", answers=("Ada",)) for name in "abcd"])
    with settings(lm, patient()), pytest.raises(ConfigError, match="no example could be answered"):
        demonstrated(Vanilla(), Demos(how, count=1), train, 1, tmp_path / "x", {})
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_never_right_has_no_demonstrations(tmp_path: Path, caplog: Caplog) -> None:
    lm, _ = scripted(lambda asked, config: "Eve")
    train = dspy_examples([Query(name, f"who {name}", answers=("Ada",)) for name in "ab"])
    with settings(lm, patient()):
        taught = demonstrated(Vanilla(), Demos("bootstrap", count=1), train, 1, tmp_path / "x", {})
    assert taught.answer.demos == []
    assert "no demonstration could be made of 2 examples" in caplog.text


def test_a_query_that_is_answered_twice_is_refused(tmp_path: Path) -> None:
    file = GrowingFile(tmp_path / "x.jsonl", {})
    file.add([{"query_id": "a", "failed": "no"}, {"query_id": "b"}, {"query_id": "a"}])
    refuse_other(file, ["a", "b", "c"])
    raises(DataError, r"line 3: the query 'b' is answered already, or is none", refuse_other, file, ["a"])
    file.add([{"query_id": "b"}])
    raises(DataError, r"line 5: the query 'b'", refuse_other, file, ["a", "b", "c"])


def test_probabilities_of_any_scale_are_summed_and_a_single_query_keeps_its_scores() -> None:
    source = ScriptedRetriever({"q": [("b", 2.0), ("a", 1.0), ("c", 0.0)], "p": [("a", 9.0)]})
    module = Retrieval(source, CORPUS, k=2)
    assert module.find("q") == [
        RetrievedPassage("b", "B: text b", 2.0),
        RetrievedPassage("a", "A: text a", 1.0),
    ]
    assert module.find(" ") == module.fused([]) == []
    assert len(source.asked) == 1  # nothing is asked for an empty query
    e = 2.718281828459045
    rest = e**2 + e + 1
    assert [(one.id, one.score) for one in module.fused(["q", "p"])] == [
        ("a", pytest.approx(1 + e / rest)), ("b", pytest.approx(e**2 / rest)),
    ]  # fmt: skip


def test_a_retriever_is_a_module_of_dspy() -> None:
    module = retrieval({"x": [("b", -0.5), ("a", -1.0)]}, k=2)
    program = dspy.Module()
    program.search = module
    assert [name for name, part in program.named_sub_modules() if part is module] == ["self.search"]
    found = program.deepcopy().search(query="x")
    assert found.passages == ["B: text b", "A: text a"]
    assert found.found == module.find("x")


def test_a_fused_query_is_retrieved_for_deeper_and_counts_as_often_as_it_is_given() -> None:
    deep = retrieval({"x": [("a", -1.0), ("b", -1.5)], "y": [("c", -1.1), ("b", -1.2)]}, k=1)
    assert [one.id for one in deep.fused(["x", "y"])] == ["b"]  # second in both
    assert [one.id for one in deep.fused(["x", "", "y", "x", "x"])] == ["a"]


def test_a_retriever_is_never_called_by_two_threads_at_once() -> None:
    class Jealous(ScriptedRetriever):
        busy = False

        def retrieve(self, queries: Sequence[Query], k: int, allow: Any = None) -> Any:
            assert not self.busy
            self.busy = True
            sleep(0.002)
            self.busy = False
            return super().retrieve(queries, k, allow)

    source = Jealous({f"q{n}": [("abcdef"[n % 6], -1.0)] for n in range(30)})
    module = Retrieval(source, CORPUS, k=1)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda n: module.find(f"q{n}")[0].id, range(30)))
    assert found == ["abcdef"[n % 6] for n in range(30)]
