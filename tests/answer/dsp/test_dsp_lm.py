"""Demonstrate-search-predict: models as DSPy gets them, on this machine and behind an endpoint."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep
from typing import Any, ClassVar

import pytest
import torch
from failing import raises
from fixture_types import Patch

pytest.importorskip("dspy", reason="the extra dsp is not installed")

import dspy
from dsp_helpers import characters
from models_small import small_llama

from grls.answer.dsp.calls import cost_of, recorded_calls
from grls.answer.dsp.lm import APART, LocalEngine, adapter_named, lm_named
from grls.answer.dsp.options import CallOptions, ProgramOptions
from grls.answer.dsp.programs import (
    Vanilla,
    answer_all,
    likeliest,
    sampled,
    settings,
)
from grls.answer.writer import TextWriter
from grls.io.work import GrowingFile


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine(*tiny(), max_new_tokens=6)


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
    (expected,) = TextWriter(engine.model, engine.tokenizer, 6).write([engine.tokenizer("abc")["input_ids"]])
    assert given.text == expected.text
    assert (given.usage.input_tokens, given.usage.output_tokens) == (3, len(expected.tokens))
    assert given.finish_reason == ("stop" if expected.ended else "length")
    stop = next(letter for letter in expected.text[1:] if letter not in f"{expected.text[0]} \n")
    ended = engine.complete(request("abc", stop=(stop,)))
    assert ended.text == expected.text[: expected.text.index(stop)].rstrip()
    assert ended.finish_reason == "stop"
    assert engine.complete(request("abc", max_tokens=2)).usage.output_tokens == 2
    assert engine.complete(request("a<eos>b")).usage.input_tokens == 7  # nobody forges an end
    together, apart = request("ab\n\nc"), replace(request("c"), system="ab")
    assert engine.complete(apart).text == engine.complete(together).text != engine.complete(request("c")).text
    raises(dspy.lm15.ContextLengthError, "takes 300 tokens", engine.complete, request("a" * 300))


def test_draws_depend_on_prompt_and_seed_alone(engine: LocalEngine) -> None:
    asked = [request(text, temperature=1.5, seed=seed) for text in ("ab", "cd") for seed in (1, 2)]
    alone = [engine.complete(one).text for one in asked]
    assert len(set(alone)) == 4
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda one: engine.complete(one).text, asked * 3)) == alone * 3
    assert engine.complete(request("ab", temperature=0.0, seed=3)).text == engine.complete(request("ab")).text


def test_log_probabilities_are_those_of_the_model_whatever_the_temperature(engine: LocalEngine) -> None:
    """Against one pass over the prompt and what was written; only where they are asked for."""
    texts = [request(text, temperature=1.5, seed=3, logprobs=0, max_tokens=5) for text in ("ab", "cdefg")]
    with ThreadPoolExecutor(2) as pool:
        given = list(pool.map(engine.complete, texts))
    for asked, response in zip(texts, given, strict=True):
        prompt = engine.tokenizer(asked.messages[0].text)["input_ids"]
        row = [token.token_id for token in response.logprobs]
        with torch.no_grad():
            logits = engine.model(torch.tensor([[*prompt, *row]])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(1, torch.tensor(row)[:, None])[:, 0]
        assert [token.logprob for token in response.logprobs] == pytest.approx(expected.tolist(), abs=1e-4)
        assert len(row) == response.usage.output_tokens
        assert engine.tokenizer.convert_tokens_to_ids([token.token for token in response.logprobs]) == row
    assert engine.complete(request("ab")).logprobs is None


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


def completion(text: str, *scores: float) -> tuple[int, str]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    if scores:
        choice["logprobs"] = {"content": [{"token": "x", "logprob": score} for score in scores]}
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


def test_an_endpoint_that_fails_writes_nonsense_and_then_answers(endpoint: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr("dspy.clients.execution._delay", lambda error, attempt: 0.0)
    Endpoint.replies = iter([(503, "busy"), ("hang", ""), completion("what?"), completion(GOOD)])
    monkeypatch.setattr("grls.answer.dsp.lm.TIMEOUT", 0.5)
    lm = lm_named("m", CallOptions(endpoint, max_new_tokens=9))[0]
    with settings(lm, adapter_named("chat", 3)), recorded_calls() as trace:
        assert Vanilla()(question="who").answer == "Ada"
    assert [step.get("failed", "").split(":")[0] for step in trace] == ["AdapterParseError", ""]
    assert "what?" in trace[0]["failed"]
    assert cost_of(trace) == {"calls": 2, "tokens_read": 14, "tokens_written": 6, "retrievals": 0}
    (call,) = trace[-1]["calls"]
    assert [role for role, _ in call["prompt"]] == ["system", "user"]
    assert "[[ ## question ## ]]\nwho" in call["prompt"][1][1]
    assert (call["output"], call["tokens_read"], call["tokens_written"]) == (GOOD, 7, 3)
    body = Endpoint.bodies[0]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 9)
    assert (Endpoint.bodies[3]["temperature"], Endpoint.bodies[3]["seed"]) == (0.7, APART)


def test_an_endpoint_is_asked_for_log_probabilities(endpoint: str) -> None:
    Endpoint.replies = iter([completion(GOOD, -1.0, -3.0), completion(GOOD, -1.0), completion(GOOD)])
    lm = lm_named("m", CallOptions(endpoint))[0]
    with settings(lm, adapter_named("chat", 1)):
        drawn = sampled(Vanilla().answer, ProgramOptions(queries=2), scored=True, question="who")
        assert [one.log_probability for one in drawn] == [-2.0, -1.0]
        assert likeliest(drawn) is drawn[1]
        plain = Vanilla()(question="who")
    assert [body.get("logprobs") for body in Endpoint.bodies] == [True, True, None]
    assert plain.answer == "Ada"


def test_an_endpoint_that_is_gone_is_a_failed_query(tmp_path: Path) -> None:
    lm = lm_named("m", CallOptions("http://127.0.0.1:9/v1", attempts=1))[0]
    file = GrowingFile(tmp_path / "x.jsonl", {})
    (record,) = answer_all(Vanilla(), {"q": {"question": "who"}}, lm, adapter_named("chat", 2), file)
    assert record["failed"].startswith("LMTransportError")
    assert len(record["trace"]) == 1
