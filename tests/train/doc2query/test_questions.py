"""Questions by an instructed language model, here and at an address: prompts, checks, and the command."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from chat_server import Server, address, serving
from failing import fails, raises
from llama_small import write_untrained

from grls.answer.writer import Continuation, Sampling
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_queries
from grls.data.types import Hit, Passage
from grls.errors import ConfigError
from grls.train.doc2query import questions
from grls.train.doc2query.generate import Task, estimated_tokens, open_queries, quotes, sift
from grls.train.doc2query.options import Drawing
from grls.train.doc2query.questions import SHOWN, Endpoint, QuestionPrompt, linked_pairs, question_of

CORPUS = Corpus.from_passages(
    [
        Passage("film", "Blue Moon is a film that Lee Harker directed in the winter of 1950.", "Blue Moon"),
        Passage("lee", "Harker was born near Oslo and studied medicine before he turned to the screen.",
                "Lee Harker"),
        Passage("otter", "An otter eats fish and crabs, which it finds in cold and shallow rivers.", "Otter"),
    ]
)  # fmt: skip


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(questions.time, "sleep", lambda seconds: None)
    with serving() as made:
        yield made


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


@pytest.mark.parametrize(
    "text",
    ['Question: "Why?"', "**Q1: Why?**", "1. Why?", "\n\nWhy?\nBecause.", "“Why?”", "Why?",
     "<think>\nWhat?\n</think>\n\nWhy?", "What? I see.</think>Why?", "**Question:**\nWhy?",
     "Sure! Here is a question:\n\nWhy?", "Of course.\nWhy?"],
)  # fmt: skip
def test_a_question_is_the_first_line_with_a_question_mark_without_label_and_quotes(text: str) -> None:
    assert question_of(text) == "Why?"


def test_other_question_marks_and_none() -> None:
    assert question_of("好的。\n为什么？") == "为什么？"
    assert question_of("نعم\nلماذا؟") == "لماذا؟"
    assert question_of("Tell it\nNow") == "Tell it"
    assert question_of("<think>What is it?") == question_of("Here is one:") == ""
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


def test_a_character_that_is_not_latin_is_about_a_token() -> None:
    def tokens(letter: str) -> int:
        corpus = Corpus.from_passages([Passage("a", letter * 3500)])
        return estimated_tokens(QuestionPrompt(True), corpus, [Task(0, 0)])

    assert tokens("a") - tokens("") == 1000
    assert 2500 < tokens("川") - tokens("") < 3500


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
        ("pseudo2-film-0", ("film", "lee")),
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


def test_ids_of_passages_that_look_like_pairs_give_ids_of_their_own() -> None:
    corpus = Corpus.from_passages([Passage(name, f"text of {name}") for name in ("a", "b-c", "a-b", "c")])
    pairs = (("a", "b-c"), ("a-b", "c"), ("a-b", None))
    records = [
        {"passage": first, "draw": 0, "text": "who ?", "ended": True} | ({"second": second} if second else {})
        for first, second in pairs
    ]
    assert len({query.id for query in sift(records, corpus).queries}) == 3


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
    assert "; --tokens 310 leaves 1 of them" in capsys.readouterr().out


def answers_of(endpoint: Endpoint, prompts: list[Any]) -> list[Continuation | str]:
    return [*endpoint.write(prompts, [Sampling(1.0, 0)] * len(prompts), 8)]


def test_an_address_that_fails(data: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    endpoint = Endpoint(address(server), "some")
    prompt = [QuestionPrompt(True).turns([CORPUS[0]])]
    answers = iter([503, 429, "Why?"])
    server.answer = lambda turns: next(answers)
    assert [one.text for one in answers_of(endpoint, prompt) if not isinstance(one, str)] == ["Why?"]
    answers = iter([b"", [{"type": "text", "text": "Wh"}, {"type": "text", "text": "y?"}]])
    server.answer = lambda turns: next(answers)
    raises(ConfigError, "answers otherwise", answers_of, endpoint, prompt)
    assert answers_of(endpoint, prompt) == [Continuation("Why?", (), True)]
    server.answer = lambda turns: 503
    raises(ConfigError, "it answers 503: .*Call again later: what was written", answers_of, endpoint, prompt)
    server.answer = lambda turns: b'{"error": {"message": "model overloaded"}}'
    raises(ConfigError, "model overloaded.*Call again later", answers_of, endpoint, prompt)
    for code in (401, 402, 403, 404):
        server.answer = lambda turns, code=code: code
        raises(ConfigError, f"cannot be asked: it answers {code}", answers_of, endpoint, prompt)
    server.answer = lambda turns: b"<html>"
    raises(ConfigError, "answers otherwise than an OpenAI-compatible", answers_of, endpoint, prompt)
    nobody = Endpoint("http://127.0.0.1:9/v1", "some")
    raises(ConfigError, r"cannot be reached \(.*call again", answers_of, nobody, prompt)


def test_a_server_that_hangs_is_not_waited_for_when_time_is_up(server: Server) -> None:
    hangs, running, begun = threading.Event(), set(threading.enumerate()), monotonic()
    server.answer = lambda turns: "Why?" if turns == ["first"] else hangs.wait(60) and 503
    answers = Endpoint(address(server), "some").write([["first"], *[[]] * 8], [Sampling(1.0, 0)] * 9, 8)  # type: ignore[list-item]
    assert next(answers) == Continuation("Why?", (), True)
    with pytest.raises(TimeoutError):
        answers.throw(TimeoutError)  # type: ignore[attr-defined]
    assert monotonic() - begun < 30
    hangs.set()
    for thread in set(threading.enumerate()) - running:
        if thread.is_alive():  # and not about to begin
            thread.join(30)
    assert len(server.asked) <= 9  # nor asked again


def test_an_answer_that_is_cut_off_is_asked_for_again(server: Server) -> None:
    server.headers = {"Content-Length": "1000"}
    asking = Endpoint(address(server), "some", attempts=2)
    prompt = [QuestionPrompt(True).turns([CORPUS[0]])]
    raises(ConfigError, "reached.*IncompleteRead", answers_of, asking, prompt)
    assert len(server.asked) == 2
    server.answer = lambda turns: 404  # an error whose text is cut off
    raises(ConfigError, "404", answers_of, asking, prompt)


@pytest.mark.parametrize(
    ("after", "waited"), [("7", [7, 7]), ("3600", [60, 60]), ("Mon, 30 Nov 2026 10:00:00 GMT", [1, 2])]
)
def test_a_server_says_how_long_to_wait(
    after: str, waited: list[int], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(questions.time, "sleep", waits.append)
    server.answer, server.headers = lambda turns: 429, {"Retry-After": after}
    asking = Endpoint(address(server), "some", attempts=3)
    prompt = [QuestionPrompt(True).turns([CORPUS[0]])]
    raises(ConfigError, "it answers 429", answers_of, asking, prompt)
    assert waits == waited


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://localhost/v1", "http://", "http://a:x/v1", ""])
def test_what_is_no_address_is_refused_at_once(
    url: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = fails(capsys, "prepare", "pseudo-queries", "--data", data, "--model", "some", "--output",
                 data / "out.jsonl", "--endpoint", url)  # fmt: skip
    assert "is no address: give one such as http://localhost:8000/v1" in said


@pytest.fixture
def many(tmp_path: Path) -> list[str]:
    """A command that asks for one question of each of 80 passages, up to the address."""
    made = [Passage(f"p{n}", f"Creature number {n} eats fish and crabs.", f"Creature {n}") for n in range(80)]
    Corpus.from_passages(made).write(tmp_path / "corpus.jsonl")
    out = str(tmp_path / "out.jsonl")
    return ["prepare", "pseudo-queries", "--data", str(tmp_path), "--model", "some", "--output", out,
            "--draw.queries", "1", "--retrievers", "[]", "--endpoint"]  # fmt: skip


def number(turns: list[dict[str, str]]) -> int:
    return int(turns[-1]["content"].split()[2].strip("."))


def written(many: list[str]) -> list[dict[str, Any]]:
    file = Path(many[many.index("--output") + 1] + ".written.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()[1:]] if file.is_file() else []


@pytest.mark.parametrize("code", [401, 500])
def test_what_was_written_before_an_error_stays(
    code: int, many: list[str], server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = lambda turns: code if number(turns) == 45 else f"What eats {number(turns)} crabs?"
    assert "what was written stays" in fails(capsys, *many, address(server))
    assert [record["passage"] for record in written(many)] == [f"p{n}" for n in range(45)]
    server.asked.clear()
    server.answer = lambda turns: f"What eats {number(turns)} crabs?"
    assert main([*many, address(server)]) == 0
    assert sorted(number(one["messages"]) for one in server.asked) == [*range(45, 80)]


def test_what_ends_a_run_costs_no_answer_that_has_come(many: list[str], server: Server) -> None:
    """A question hangs, and the run is ended while it waits: those before it are asked for once."""

    def answer(turns: list[dict[str, str]]) -> Any:
        if number(turns) == 20 and not ended:
            end = monotonic() + 20
            while len(written(many)) < 20 and monotonic() < end:
                sleep(0.05)
            ended.append(len(written(many)))
            signal.raise_signal(signal.SIGINT)
        return f"What eats {number(turns)} crabs?"

    ended = list[int]()
    server.answer = answer
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    try:
        assert main([*many, address(server)]) != 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == [20]
    assert main([*many, address(server)]) == 0
    asked = [number(one["messages"]) for one in server.asked]
    assert len(written(many)) == 80
    assert [asked.count(n) for n in range(20)] == [1] * 20


def test_more_tokens_ask_only_for_more_questions(many: list[str], server: Server) -> None:
    server.answer = lambda turns: f"What eats {number(turns)} crabs?"
    for tokens in ("4000", "8000", "4000"):
        assert main([*many, address(server), "--tokens", tokens]) == 0
        asked = [number(one["messages"]) for one in server.asked]
        assert len(asked) == len({*asked}) == len(written(many))
    assert 0 < len(asked) < 80


def test_a_prompt_that_is_refused_ends_nothing_and_tells_why(
    many: list[str], server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = lambda turns: 400 if number(turns) == 3 else f"What eats {number(turns)} crabs?"
    assert main([*many, address(server)]) == 0
    said = capsys.readouterr().out
    assert "1 prompt not read by the model, such as: it answers 400" in said
    assert "dropped: not read by the model 1" in said
    Path(many[many.index("--output") + 1] + ".written.jsonl").unlink()
    server.answer = lambda turns: 400
    assert "cannot be asked: it answers 400" in fails(capsys, *many, address(server))


def test_another_language_is_told_although_no_question_is_kept(
    data: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = lambda turns: "Quelle est la raison pour laquelle les animaux vivent dans la rivière ?"
    out = str(data / "out.jsonl")
    assert main(["prepare", "pseudo-queries", "--data", str(data), "--model", "some", "--output", out,
                 "--draw.queries", "1", "--k", "1", "--endpoint", address(server)]) == 1  # fmt: skip
    said = capsys.readouterr()
    assert "the questions seem to be in 'fr', and the passages in 'en'" in said.out
    assert "none of the pseudo-queries is kept" in said.err


def test_the_help_says_how_no_retriever_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["prepare", "pseudo-queries", "--help"])
    assert "With none (``[]``) only unusable texts are dropped" in " ".join(capsys.readouterr().out.split())


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
        records = [*writer.write(tasks)]
        assert [record["passage"] for record in records] == (
            ["film", "lee", "otter"] if hops == 1 else ["film"]
        )
        assert [record.get("second") for record in records] == ([None] * 3 if hops == 1 else ["lee"])
        assert not any("failed" in record for record in records)
        assert records == [*writer.write(tasks)]
