"""Questions by an instructed language model, here and at an address: prompts, checks, and the command."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from failing import raises
from llama_small import write_untrained

from grls.answer.writer import Sampling
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_queries
from grls.data.types import Hit, Passage
from grls.errors import ConfigError
from grls.train.doc2query import questions
from grls.train.doc2query.generate import Drawing, open_queries, quotes, sift
from grls.train.doc2query.questions import SHOWN, Endpoint, QuestionPrompt, linked_pairs, question_of

CORPUS = Corpus.from_passages(
    [
        Passage("film", "Blue Moon is a film that Lee Harker directed in the winter of 1950.", "Blue Moon"),
        Passage("lee", "Harker was born near Oslo and studied medicine before he turned to the screen.",
                "Lee Harker"),
        Passage("otter", "An otter eats fish and crabs, which it finds in cold and shallow rivers.", "Otter"),
    ]
)  # fmt: skip


class Server(ThreadingHTTPServer):
    """Answers with what ``answer`` says of the prompt: a question, a status, or bytes."""

    answer: Any = staticmethod(lambda turns: "?")
    asked: list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body | {"path": self.path, "key": self.headers["Authorization"]})
        answer = self.server.answer(body["messages"])
        self.send_response(answer if isinstance(answer, int) else 200)
        self.end_headers()
        message = {"choices": [{"message": {"content": answer}, "finish_reason": "stop"}]}
        self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(message).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(questions.time, "sleep", lambda seconds: None)
    made = Server(("127.0.0.1", 0), Handler)
    made.asked = []
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}/v1"


def question(turns: list[dict[str, str]]) -> str:
    """A good question for each passage, and for the pair."""
    text = turns[-1]["content"]
    if "Passage 2: Lee Harker" in text:
        return 'Question: "Where did the director of Blue Moon come from, near Oslo?"\nIt is easy.'
    return "Which animal looks for crabs and fish in a river?" if "Otter" in text else "What is Blue Moon?"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    CORPUS.write(tmp_path / "corpus.jsonl")
    return tmp_path


def test_a_question_is_the_first_line_without_label_and_quotes() -> None:
    for text in ('Question: "Why?"', "**Q1: Why?**", "1. Why?", "\n\nWhy?\nBecause.", "“Why?”", "Why?"):
        assert question_of(text) == "Why?"
    assert question_of("2010 was what?") == "2010 was what?"
    assert question_of("") == ""


def test_the_prompt_shows_examples_and_no_more_of_a_passage_than_it_should() -> None:
    prompt = QuestionPrompt(True, words=3)
    turns = prompt.turns([CORPUS[0], CORPUS[1]])
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert (
        turns[-1]["content"] == "Passage 1: Blue Moon. Blue Moon is\nPassage 2: Lee Harker. Harker was born"
    )
    assert prompt.turns([CORPUS[2]])[-1]["content"] == "Passage: Otter. An otter eats"


def test_pairs_follow_links() -> None:
    assert linked_pairs(CORPUS, 5, 0) == [(0, 1)]
    linked = Corpus.from_passages([Passage("a", "x"), Passage("b", "y")], metadata=[{"links": ["b"]}, {}])
    assert linked_pairs(linked, 5, 0) == [(0, 1)]


class Finds:
    def __init__(self, *ids: str):
        self.ids = ids

    def retrieve(self, some: Any, k: int, allow: Any = None) -> list[list[Hit]]:
        return [[Hit(name, 0.0) for name in self.ids[:k]] for _ in some]


def test_questions_are_sifted() -> None:
    def record(text: str, passage: str = "film", **more: str) -> dict[str, Any]:
        return {"passage": passage, "draw": 0, "text": text, "ended": True, **more}

    records = [
        record("who made Blue Moon ?"),
        record("who made Blue Moon ?"),
        record(next(iter(SHOWN))),
        record("which film that Lee Harker directed in the winter ?"),
        record("where did Lee Harker, its director, study ?", second="lee"),
        record("where did the director of Blue Moon study ?", second="lee"),
    ]
    found = sift(records, CORPUS, asked=True)
    assert [(query.id, query.evidence) for query in found.queries] == [
        ("pseudo-film-0", ("film",)),
        ("pseudo-film-lee-0", ("film", "lee")),
    ]
    assert found.dropped == {
        "written before": 1,
        "copies the prompt": 1,
        "quotes a passage": 1,
        "names the second passage": 1,
    }
    both = [Finds("film", "lee"), Finds("lee", "otter", "film")]
    for judges, k, kept in ((both[:1], 2, 2), (both, 2, 0), (both, 3, 2), ([Finds("film")], 5, 1)):
        assert len(sift(records, CORPUS, judges, k, asked=True).queries) == kept


def test_a_quote_is_more_than_half_of_a_question() -> None:
    text = "an otter eats fish and crabs which it finds in cold rivers"
    assert quotes("otter eats fish and crabs which", text)
    assert not quotes("otter eats fish and crabs", text)
    assert not quotes("what is it that an otter eats fish and crabs which one asks about", text)


@pytest.mark.parametrize("hops", [1, 2])
def test_the_command_asks_an_address(
    hops: int, data: Path, server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    server.answer = question
    command = ["prepare", "pseudo-queries", "--data", str(data), "--model", "some", "--endpoint",
               address(server), "--output", str(data / "queries.jsonl"), "--draw.queries", "1",
               "--draw.hops", str(hops)]  # fmt: skip
    assert main(command) == 0
    said = capsys.readouterr().out
    written = [(query.text, query.evidence) for query in read_queries(data)]
    if hops == 2:
        assert written == [("Where did the director of Blue Moon come from, near Oslo?", ("film", "lee"))]
    else:
        assert [evidence for _, evidence in written] == [("film",), ("otter",)]
        assert "tokens are read and written for 3 questions" in said
        assert "Which animal looks for crabs and fish in a river?  (otter)" in said
    (first, *_) = server.asked
    assert (first["path"], first["key"], first["model"]) == (
        "/v1/chat/completions", "Bearer secret", "some",
    )  # fmt: skip
    asked = len(server.asked)
    assert main(command) == 0  # the file of what was written is enough
    assert len(server.asked) == asked
    assert main([*command[:-2], "--tokens", "310", "--output", str(data / "few.jsonl")]) == 0
    assert "leaves 1 of them" in capsys.readouterr().out


def test_an_address_that_fails(data: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    draws = [Sampling(1.0, 0)]
    endpoint = Endpoint(address(server), "some")
    prompt = [QuestionPrompt(True).turns([CORPUS[0]])]
    answers = iter([503, 429, "Why?"])
    server.answer = lambda turns: next(answers)
    assert [one.text for one in endpoint.write(prompt, draws, 8) if not isinstance(one, str)] == ["Why?"]
    server.answer = lambda turns: 503
    assert endpoint.write(prompt, draws, 8) == ["it answers 503: " + json.dumps(
        {"choices": [{"message": {"content": 503}, "finish_reason": "stop"}]}
    )]  # fmt: skip
    server.answer = lambda turns: 401
    raises(ConfigError, "cannot be asked: it answers 401", endpoint.write, prompt, draws, 8)
    server.answer = lambda turns: b"<html>"
    raises(ConfigError, "answers otherwise than an OpenAI-compatible", endpoint.write, prompt, draws, 8)
    nobody = Endpoint("http://127.0.0.1:9/v1", "some")
    raises(ConfigError, r"cannot be reached \(.*call again", nobody.write, prompt, draws, 8)


def test_two_hops_need_links(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    Corpus.from_passages([Passage("a", "x"), Passage("b", "y")]).write(plain / "corpus.jsonl")
    two = Drawing(hops=2)
    given = (two, None, 4, "cpu", "float32", "http://127.0.0.1:9/v1")
    raises(ConfigError, "no passage of .* names or links to another", open_queries, str(plain), "m", *given)


def test_a_language_model_that_was_not_trained_to_write_queries_is_asked(data: Path, tmp_path: Path) -> None:
    (data / "queries.jsonl").write_text('{"_id": "q", "text": "who ?"}\n')
    folder = write_untrained(tmp_path / "model", data, " ".join(questions.SHOWN), 1024)
    for hops in (1, 2):
        tasks, writer, _ = open_queries(
            str(data), str(folder), Drawing(1, hops=hops), None, 2, "cpu", "float32"
        )
        records = writer.write(tasks)
        assert [record["passage"] for record in records] == (
            ["film", "lee", "otter"] if hops == 1 else ["film"]
        )
        assert [record.get("second") for record in records] == ([None] * 3 if hops == 1 else ["lee"])
        assert not any("failed" in record for record in records)
        assert records == writer.write(tasks)
