"""Demonstrate-search-predict: retrievers and models as DSPy gets them, failures, threads, resuming."""

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep
from typing import Any, ClassVar

import pytest
import torch

pytest.importorskip("dspy", reason="the extra dsp is not installed")

import dspy
from dsp_helpers import CORPUS, ScriptedRetriever, characters, patient, retrieval, scripted
from models_small import small_llama

from grls.errors import ConfigError, DataError, MismatchError
from grls.growing import GrowingFile
from grls.programs.dsp.baselines import RetrieveThenRead, Vanilla
from grls.programs.dsp.branch import Branch, sampled
from grls.programs.dsp.build import adapter_named, demonstrated, lm_named
from grls.programs.dsp.demonstrate import examples
from grls.programs.dsp.gather import Gathered
from grls.programs.dsp.lines import LinesAdapter
from grls.programs.dsp.lm import LocalEngine, endpoint_lm, local_lm
from grls.programs.dsp.patience import APART, LONGEST_WAIT, Patience
from grls.programs.dsp.programs import MultiHop
from grls.programs.dsp.retrieval import Found, Retrieval
from grls.programs.dsp.run import answer_all, settings
from grls.programs.dsp.trace import note, recorded
from grls.types import Query


def test_what_threads_ask_meanwhile_is_computed_together() -> None:
    begun, go = threading.Event(), threading.Event()
    batches: list[list[int]] = []

    def compute(asked: Sequence[int]) -> list[int]:
        batches.append(list(asked))
        begun.set()
        assert go.wait(10)
        return [2 * n for n in asked]

    gathered = Gathered(compute, most=3)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(gathered, 0)
        assert begun.wait(10)
        rest = [pool.submit(gathered, n) for n in range(1, 6)]
        while len(gathered._waiting) < 5:
            sleep(0.001)
        go.set()
        assert [future.result() for future in [first, *rest]] == [0, 2, 4, 6, 8, 10]
    assert [len(batch) for batch in batches] == [1, 3, 2]


def test_an_error_is_that_of_its_own_asker() -> None:
    begun, go = threading.Event(), threading.Event()

    def compute(asked: Sequence[int]) -> list[int]:
        begun.set()
        assert go.wait(10)
        if 1 in asked:
            raise ValueError("no")
        return list(asked)

    gathered = Gathered(compute, most=4)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(gathered, 0)
        assert begun.wait(10)
        rest = [pool.submit(gathered, n) for n in (1, 2)]
        while len(gathered._waiting) < 2:
            sleep(0.001)
        go.set()
        assert (first.result(), rest[1].result()) == (0, 2)
        with pytest.raises(ValueError, match="no"):
            rest[0].result()


def test_a_retriever_as_a_module() -> None:
    source = ScriptedRetriever({"q": [("b", 2.0), ("a", 1.0), ("c", 0.0)]})
    module = Retrieval(source, CORPUS, k=2)
    found = module(query="q")
    assert found.passages == ["B: text b", "A: text a"]
    e = 2.718281828459045
    assert found.found == [
        Found("b", "B: text b", 2.0, pytest.approx(e / (1 + e))),
        Found("a", "A: text a", 1.0, pytest.approx(1 / (1 + e))),
    ]
    assert module.find(" ") == []
    assert len(source.asked) == 1  # nothing is asked for an empty query
    assert [one.id for one in module.find("q", k=3)] == ["b", "a", "c"]
    with pytest.raises(ConfigError, match="k must be"):
        Retrieval(source, CORPUS, k=0)


def test_fusion_counts_a_query_as_often_as_it_is_given() -> None:
    module = retrieval({"x": [("a", -1.0)], "y": [("b", -0.5)], "z": [("c", -2.0), ("d", -2.0)]}, k=3)
    e = 2.718281828459045
    found = module.fused(["x", "y", "", "x"])
    assert [(one.id, one.score) for one in found] == [
        ("a", pytest.approx(2 * e**-1)),
        ("b", pytest.approx(e**-0.5)),
    ]
    assert module.fused(["", "z"], k=1) == [Found("c", "C: text c", -2.0, pytest.approx(e**-2))]
    assert module.fused([]) == []


def test_a_fused_query_is_retrieved_for_deeper() -> None:
    deep = retrieval({"x": [("a", -1.0), ("b", -1.5)], "y": [("c", -1.1), ("b", -1.2)]}, k=1)
    assert [one.id for one in deep.fused(["x", "y"])] == ["b"]  # second in both


def test_candidates_are_ranked_and_none_is_lost() -> None:
    module = retrieval({"q": [("c", -1.0), ("e", -2.0), ("a", -3.0)]})
    assert [(one.id, one.score) for one in module.rank("q", ["f", "a", "c", "f"])] == [
        ("c", -1.0), ("a", -3.0), ("f", 0.0)]  # fmt: skip
    assert [one.id for one in module.rank("q", ["f", "a", "c"], k=1)] == ["c"]
    with pytest.raises(DataError, match="'nowhere'"):
        module.rank("q", ["nowhere"])
    with pytest.raises(ConfigError, match="no candidate"):
        module.rank("q", [])


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
    assert max(map(len, source.asked)) > 1


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
    parse = LinesAdapter().parse
    assert parse(Sum, " a\nb\nlast part: c\n\nLast part: d") == {"first_part": "a b", "last_part": "c"}
    assert parse(Sum, "First part: a") == {"first_part": "a"}


def test_a_field_that_is_left_out_is_asked_for() -> None:
    replies = iter(["because", "Ada", "", "because"])
    lm, script = scripted(lambda asked, config: next(replies))
    program = dspy.ChainOfThought("question -> answer")
    with settings(lm, patient()):
        assert program(question="who").answer == "Ada"
        assert script.prompts[1].endswith("Question: who\nReasoning: because\nAnswer:")
        with pytest.raises(dspy.AdapterParseError, match="reasoning"):
            program(question="who")


def test_nonsense_is_asked_again_at_a_temperature_and_failures_after_longer_and_longer() -> None:
    slept: list[float] = []
    said: Iterator[Any] = iter(["", dspy.lm15.ServerError("busy"), dspy.lm15.TimeoutError("slow"), "Ada"])
    asked: list[Any] = []

    def reply(text: str, config: Any) -> Any:
        asked.append((config.temperature, config.seed))
        return next(said)

    lm, _ = scripted(reply)
    with settings(lm, Patience(LinesAdapter(), 4, 0.5, slept.append)), recorded() as trace:
        assert Vanilla()(question="who").answer == "Ada"
    assert asked == [(None, None), (0.7, APART), (0.7, APART), (0.7, APART)]
    assert slept == [0.5, 1.0, 2.0]
    assert [step.get("failed", "").split(":")[0] for step in trace.steps] == [
        "AdapterParseError", "LMServerError", "LMTimeoutError", ""]  # fmt: skip
    assert trace.cost() == {
        "calls": 4,
        "tokens_read": 20,
        "tokens_written": 4,
        "retrievals": 0,
    }  # two answered


def test_every_call_is_in_the_trace_with_what_it_served_and_what_it_cost() -> None:
    replies: Iterator[Any] = iter(
        ["a is b", dspy.lm15.ServerError("busy"), "", " b\nQuery: c ", "so it is\nAnswer: Ada \n\nmore"]
    )
    lm, script = scripted(lambda text, config: next(replies))
    program = MultiHop(retrieval({"a is b": [("a", -1.0)], "c": [("b", -1.0)]}), hops=2)
    program.load_state(program.dump_state())  # as with demonstrations of a file
    with settings(lm, patient(4)), recorded() as trace:
        assert program(question="who").answer == "Ada"
    steps = [step for step in trace.steps if step["kind"] == "lm"]
    assert [step["signature"] for step in steps] == ["SearchQuery", *["NextQuery"] * 3, "Answer"]
    assert [len(step["calls"]) for step in steps] == [1, 1, 1, 1, 1]
    calls = trace.calls()
    assert [call["prompt"] for call in calls] == script.prompts
    said = [call.get("output") for call in calls]
    assert said == ["a is b", None, "", " b\nQuery: c ", "so it is\nAnswer: Ada \n\nmore"]  # as it came
    assert calls[1]["failed"] == "LMServerError: [local/script] busy"
    assert [call["tokens_read"] for call in calls] == [10, 0, 10, 10, 10]
    assert trace.cost()["tokens_read"] == 40


def test_a_second_field_that_fails_is_counted_with_the_first() -> None:
    said: Iterator[Any] = iter(["known", dspy.lm15.ServerError("busy"), "known", "N/A"])
    lm, _ = scripted(lambda text, config: next(said))
    with settings(lm, patient(2)), recorded() as trace:
        dspy.Predict("question -> summary, query")(question="who")
    assert {step["signature"] for step in trace.steps} == {"question -> summary, query"}
    assert [len(step["calls"]) for step in trace.steps] == [2, 2]
    assert [call.get("output") for call in trace.calls()] == ["known", None, "known", "N/A"]
    assert "busy" in trace.calls()[1]["failed"]
    assert trace.cost() == {"calls": 4, "tokens_read": 30, "tokens_written": 6, "retrievals": 0}


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
    (record,) = answer_all(Vanilla(), {"q1": ASKED["q1"]}, lm, adapter_named("chat", 1, 0.0), file, 1)
    assert (record["answer"], record["ended"]) == ("Ada Love", False)


def test_an_answer_that_another_branch_wrote_whole_was_not_cut(tmp_path: Path) -> None:
    said = {1000: ("Ada", "length"), 2000: "Ada"}
    lm, _ = scripted(lambda asked, config: said[config.seed])
    asked = {"q": {"question": "who"}}
    (record,) = answer_all(
        Branch(Vanilla(), 2), asked, lm, patient(), GrowingFile(tmp_path / "x.jsonl", {}), 1
    )
    assert (record["answer"], record["ended"]) == ("Ada", True)


def test_an_endpoint_says_how_long_to_wait() -> None:
    slept: list[float] = []
    said: Iterator[Any] = iter([dspy.lm15.RateLimitError("later", retry_after=9.0), "Ada"])
    lm, _ = scripted(lambda text, config: next(said))
    with settings(lm, Patience(LinesAdapter(), 2, 0.5, slept.append)):
        assert Vanilla()(question="who").answer == "Ada"
    assert slept == [9.0]
    said = iter([dspy.lm15.RateLimitError("tomorrow", retry_after=86400.0), "Ada"])
    with settings(lm, Patience(LinesAdapter(), 2, 0.5, slept.append)):
        assert Vanilla()(question="who").answer == "Ada"
    assert slept == [9.0, LONGEST_WAIT]


@pytest.mark.parametrize("error", ["ContextLengthError", "AuthError", "InvalidRequestError"])
def test_what_waiting_does_not_mend_is_not_asked_again(error: str) -> None:
    lm, script = scripted(lambda text, config: getattr(dspy.lm15, error)("no"))
    with settings(lm, patient(attempts=5)), pytest.raises(dspy.LMError):
        Vanilla()(question="who")
    assert len(script.prompts) == 1
    for attempts, wait in ((0, 1.0), (1, -1.0)):
        with pytest.raises(ConfigError, match="attempts"):
            Patience(LinesAdapter(), attempts, wait)


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
    assert records[1]["cost"] == {"calls": 2, "tokens_read": 0, "tokens_written": 0, "retrievals": 1}
    assert records[0]["cost"] == {"calls": 1, "tokens_read": 10, "tokens_written": 2, "retrievals": 1}
    assert [record["found"] for record in records] == [
        [["a", -1.0]],
        [["b", -2.0]],
        [],
    ]  # the failed one, too
    assert sum(done) == 3
    said["q2"] = "two"
    script.prompts.clear()
    again = answer_all(program, ASKED, lm, patient(), GrowingFile(tmp_path / "x.jsonl", {"a": 1}))
    assert [record["answer"] for record in again] == ["one", "two", "three"]
    assert len(script.prompts) == 1


def test_a_program_that_fails_after_its_hops_keeps_what_they_found(tmp_path: Path) -> None:
    def said(asked: str, config: Any) -> Any:
        return dspy.lm15.TimeoutError("slow") if asked.endswith("Answer:") else f"q{len(script.prompts)}"

    lm, script = scripted(said)
    source = ScriptedRetriever({f"q{n}": [("a", -1.0), ("b", -2.0)][: n % 2 + 1] for n in range(9)})
    file = GrowingFile(tmp_path / "x.jsonl", {})
    program = MultiHop(Retrieval(source, CORPUS), hops=2)
    (record,) = answer_all(program, {"q": {"question": "who"}}, lm, patient(1), file, 1)
    hops = [step["found"] for step in record["trace"] if step["kind"] == "retrieval"]
    assert "LMTimeoutError" in record["failed"]
    assert hops
    assert {name for name, _ in record["found"]} == {name for hop in hops for name, _ in hop}


def test_half_of_a_surrogate_pair_is_kept_as_a_question_mark(tmp_path: Path) -> None:
    lm, _ = scripted(lambda asked, config: "A\ud800b")
    file = GrowingFile(tmp_path / "x.jsonl", {})
    (record,) = answer_all(Vanilla(), {"q": {"question": "who"}}, lm, patient(), file, 1)
    assert record["answer"] == "A?b"
    assert GrowingFile(tmp_path / "x.jsonl", {}).records == [record]


def test_another_attempt_is_another_draw() -> None:
    """Of several draws at a temperature each nonsensical one is drawn again, and none is another's."""
    draws: list[tuple[float, int]] = []

    def reply(asked: str, config: Any) -> str:
        draws.append((config.temperature, config.seed))
        return "" if len(draws) % 2 else "Ada"

    lm, _ = scripted(reply)
    with settings(lm, patient(2)):
        sampled(dspy.Predict("question -> answer"), 3, 0.5, question="who")
    assert len(set(draws)) == len(draws) == 6
    assert {temperature for temperature, _ in draws} == {0.5}


def test_a_refused_key_ends_the_run_and_keeps_what_was_answered(tmp_path: Path) -> None:
    said: dict[str, Any] = {"q1": "one", "q2": dspy.lm15.AuthError("bad key"), "q3": "three"}
    lm, _ = scripted(lambda asked, config: said[asked.splitlines()[-2].removeprefix("Question: ")])
    file = GrowingFile(tmp_path / "x.jsonl", {})
    with pytest.raises(ConfigError, match=r"cannot be asked at all .*bad key"):
        answer_all(Vanilla(), ASKED, lm, patient(), file, 1)
    assert "q1" in [record["query_id"] for record in GrowingFile(tmp_path / "x.jsonl", {}).records]
    assert "q2" not in [record["query_id"] for record in file.records]
    with pytest.raises(ConfigError, match="threads"):
        answer_all(Vanilla(), ASKED, lm, patient(), file, 0)


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
    train = examples([Query("1", "who", answers=("Ada",))])
    file = tmp_path / "demos.json"
    with settings(lm, patient()):
        demonstrated(Vanilla(), "bootstrap", train, 1, 1, file, {"a": 1})
        asked = len(script.prompts)
        again = demonstrated(Vanilla(), "bootstrap", train, 1, 1, file, {"a": 1})
        assert len(script.prompts) == asked
        assert [demo["answer"] for demo in again.answer.demos] == ["Ada"]
        assert again(question="why").answer == "Ada"
        assert "Question: who\nAnswer: Ada\n\n" in script.prompts[-1]
        with pytest.raises(MismatchError, match="other settings"):
            demonstrated(Vanilla(), "bootstrap", train, 1, 1, file, {"a": 2})
        with pytest.raises(DataError, match="no demonstrations of this program"):
            demonstrated(dspy.Predict("a -> b"), "bootstrap", train, 1, 1, file, {"a": 1})


@pytest.mark.parametrize("how", ["bootstrap", "search"])
def test_a_model_that_fails_for_all_examples_makes_no_demonstrations(how: Any, tmp_path: Path) -> None:
    lm, _ = scripted(lambda asked, config: dspy.lm15.AuthError("bad key"))
    train = examples([Query(name, f"who {name}", answers=("Ada",)) for name in "abcd"])
    with settings(lm, patient()), pytest.raises(ConfigError, match="no example could be answered"):
        demonstrated(Vanilla(), how, train, 1, 1, tmp_path / "x", {})
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_never_right_has_no_demonstrations(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lm, _ = scripted(lambda asked, config: "Eve")
    train = examples([Query(name, f"who {name}", answers=("Ada",)) for name in "ab"])
    with settings(lm, patient()):
        assert demonstrated(Vanilla(), "bootstrap", train, 1, 1, tmp_path / "x", {}).answer.demos == []
    assert "no demonstration could be made of 2 examples" in caplog.text


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine(*tiny(), max_new_tokens=6, batch_size=4)


def tiny() -> tuple[Any, Any]:
    """A random model that writes characters."""
    torch.manual_seed(0)
    tokenizer = characters()
    model = small_llama(scale=3.0)
    model.resize_token_embeddings(len(tokenizer))
    return model.eval(), tokenizer


def request(text: str, **config: Any) -> Any:
    message = dspy.lm15.Message.user(text)
    return dspy.lm15.Request(model="local/x", messages=(message,), config=dspy.lm15.Config(**config))


def test_a_local_model_goes_on_from_the_messages(engine: LocalEngine) -> None:
    given = engine.complete(request("abc"))
    (expected,) = engine._writer((), 6).write([engine.tokenizer("abc")["input_ids"]])
    assert given.text == expected.text
    assert (given.usage.input_tokens, given.usage.output_tokens) == (3, expected.tokens)
    assert given.finish_reason == ("stop" if expected.ended else "length")
    stop = next(letter for letter in expected.text[1:] if letter not in f"{expected.text[0]} \n")
    ended = engine.complete(request("abc", stop=(stop,)))
    assert ended.text == expected.text[: expected.text.index(stop)].rstrip()
    assert ended.finish_reason == "stop"
    assert engine.complete(request("abc", max_tokens=2)).usage.output_tokens == 2
    with pytest.raises(dspy.lm15.ContextLengthError, match="takes 300 tokens"):
        engine.complete(request("a" * 300))
    with pytest.raises(ConfigError, match="no chat template"):
        LocalEngine(engine.model, engine.tokenizer, chat=True)


def test_a_chat_model_is_told_in_turns() -> None:
    model, tokenizer = tiny()
    tokenizer.chat_template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
    told = LocalEngine(model, tokenizer, 4, chat=True).complete(request("a<eos>b"))
    assert (
        told.text == LocalEngine(model, tokenizer, 4).complete(request("u:ab;")).text
    )  # nobody forges an end


def test_draws_depend_on_prompt_and_seed_alone(engine: LocalEngine) -> None:
    asked = [request(text, temperature=1.5, seed=seed) for text in ("ab", "cd") for seed in (1, 2)]
    alone = [engine.complete(one).text for one in asked]
    assert len(set(alone)) == 4
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda one: engine.complete(one).text, asked * 3)) == alone * 3
    assert engine.complete(request("ab", temperature=0.0, seed=3)).text == engine.complete(request("ab")).text


def test_a_local_model_in_a_program(engine: LocalEngine) -> None:
    with settings(local_lm(engine, "x"), patient()), recorded() as trace:
        answer = Vanilla()(question="q").answer
    assert answer
    assert (trace.cost()["calls"], trace.cost()["tokens_written"] > 0) == (1, True)


class Endpoint(BaseHTTPRequestHandler):
    replies: ClassVar[Iterator[Any]] = iter(())
    bodies: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        status, text = next(Endpoint.replies)
        if status == "hang":
            sleep(1.0)
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


def completion(text: str) -> tuple[int, str]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return 200, json.dumps(
        {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    )


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    Endpoint.bodies.clear()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


GOOD = "[[ ## answer ## ]]\nAda\n\n[[ ## completed ## ]]"


def test_an_endpoint_that_fails_writes_nonsense_and_then_answers(endpoint: str) -> None:
    replies = [(503, "busy"), (200, "<html>"), ("hang", ""), completion("what?"), completion(GOOD)]
    Endpoint.replies = iter(replies)
    lm = lm_named("m", endpoint, max_new_tokens=9, timeout=0.5).lm
    with settings(lm, adapter_named("chat", 5, 0.0)), recorded() as trace:
        assert Vanilla()(question="who").answer == "Ada"
    failures = [step.get("failed", "") for step in trace.steps]
    assert [failure.split(":")[0] for failure in failures] == [
        "LMServerError", "LMProviderError", "LMTransportError", "AdapterParseError", ""]  # fmt: skip
    assert "is not JSON" in failures[1]
    assert "timed out" in failures[2]
    assert "what?" in failures[3]
    assert trace.cost() == {"calls": 5, "tokens_read": 14, "tokens_written": 6, "retrievals": 0}
    (call,) = trace.steps[-1]["calls"]
    assert [role for role, _ in call["prompt"]] == ["system", "user"]
    assert "[[ ## question ## ]]\nwho" in call["prompt"][1][1]
    assert (call["output"], call["tokens_read"], call["tokens_written"]) == (GOOD, 7, 3)
    body = Endpoint.bodies[0]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 9)
    assert (Endpoint.bodies[4]["temperature"], Endpoint.bodies[4]["seed"]) == (0.7, 4 * APART)


def test_an_endpoint_that_is_gone_is_a_failed_query(tmp_path: Path) -> None:
    lm = endpoint_lm("m", "http://127.0.0.1:9/v1", timeout=0.5)
    file = GrowingFile(tmp_path / "x.jsonl", {})
    (record,) = answer_all(Vanilla(), {"q": {"question": "who"}}, lm, adapter_named("chat", 2, 0.0), file)
    assert record["failed"].startswith("LMTransportError")
    assert len(record["trace"]) == 2


def test_what_cannot_be_an_endpoint() -> None:
    with pytest.raises(ConfigError, match="timeout above 0"):
        endpoint_lm("m", "http://127.0.0.1:9/v1", timeout=0)
    with pytest.raises(ConfigError, match="DSPy cannot use the language model 'openai/'"):
        lm_named("api:openai/")
