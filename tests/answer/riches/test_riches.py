"""Interlaced retrieval as a program and as a command, and passages of one key told apart by TF-IDF."""

import json
import math
import re
import shutil
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from failing import fails, raises
from quoting_model import PASSAGES, QUERIES
from sklearn.feature_extraction.text import TfidfVectorizer
from unigram import byte_level

from grls.answer.kept import shown_answer
from grls.answer.riches.answerer import Riches, by_similarity
from grls.answer.riches.keys import build_keys
from grls.answer.riches.options import KeyOptions, PromptOptions
from grls.answer.riches.prompts import _MULTI, prompted, solution
from grls.answer.writer import room_of
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.decode.interleave.markers import TextMarkers
from grls.decode.interleave.options import InterleaveOptions
from grls.decode.interleave.search import Interlaced, Span
from grls.errors import ConfigError
from grls.models.load.language import load_language_model
from grls.runs.run import Run


@pytest.fixture(scope="module")
def folder(quotes: Path) -> Path:
    return quotes


def program(folder: Path, **options: Any) -> Riches:
    model, tokenizer = load_language_model(str(folder / "model"), "cpu")
    corpus = Corpus.read(folder / "data")
    keys = build_keys(corpus, tokenizer, KeyOptions(anywhere=options.pop("anywhere", False)))
    given = InterleaveOptions(**({"beams": 4, "max_new_tokens": 60} | options))
    return Riches(model, tokenizer, corpus, keys, options=given)


@pytest.mark.parametrize(("beam", "anywhere"), [("adaptive", False), ("full", True), ("greedy", False)])
def test_a_model_that_learned_to_quote_quotes(folder: Path, anywhere: bool, beam: Any) -> None:
    first, second = program(folder, anywhere=anywhere, beam=beam).answer(QUERIES)
    assert [p.kind for p in first.pieces] == ["thought", "quote", "answer"]
    assert first.quotes[0].text.replace(" ", "") == "OrlaFinnownedit."
    assert first.quotes[0].keys == ("Orla Finn owned it.",)
    assert [hit.id for hit in first.ranking] == ["a"]
    assert first.answer == "Orla Finn"
    assert first.ended
    assert [hit.id for hit in second.ranking] == ["b"]
    assert second.answer == "the barn"


def test_whoever_is_told_of_an_answer_may_use_the_model_in_another_thread(folder: Path) -> None:
    some = program(folder)
    alone, told = some.answer(QUERIES), list[str]()

    def decided(_: int) -> None:
        thread = Thread(target=lambda: told.append(some.answer(QUERIES[1:])[0].answer), daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "the model is held while an answer is told of"

    assert some.answer(QUERIES, decided) == alone
    assert told == [alone[1].answer] * 2


def test_an_unclosed_quote_retrieves_nothing(folder: Path) -> None:
    some = program(folder)
    opened = len(some.tokenizer("owner: « Orla", add_special_tokens=False)["input_ids"])
    written = program(folder, max_new_tokens=opened, beams=1).answer(QUERIES[:1])[0]
    assert not written.ended
    assert [quote.closed for quote in written.quotes] == [False]
    assert written.ranking == ()
    assert written.answer == ""
    assert "Orla -> nothing, cut at the length limit" in shown_answer(written.record(QUERIES[0]))


SHARED = [
    Passage("a", "The mill was built in 1820.", "Mill"), Passage("b", "The barn burned.", "Barn"),
    Passage("c", "The mill was red.", "Mill"), Passage("d", "The mill burned down in 1820.", "Mill"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "thought", "ids"), [
    ("what burned", "", ["d", "a", "c"]),
    ("what was red", "", ["c", "a", "d"]),
    ("who", "so red", ["c", "a", "d"]),
    ("who", "", ["a", "c", "d"]),
])  # fmt: skip
def test_passages_of_a_title_are_told_apart(folder: Path, query: str, thought: str, ids: list[str]) -> None:
    model, tokenizer = load_language_model(str(folder / "model"), "cpu")
    corpus = Corpus.from_passages(SHARED)
    some = Riches(model, tokenizer, corpus, build_keys(corpus, tokenizer, KeyOptions("title")))
    tokens, spans = [], []
    for text, key in ((thought, 0), ("", 1)):
        tokens += tokenizer(f"{text} «", add_special_tokens=False)["input_ids"]
        first = len(tokens)
        tokens += some.keys.index.tokens(key).tolist()
        spans.append(Span(first, len(tokens), (key,), -1.0, True))
        tokens += some.markers.closing
    written = some._read(Interlaced(tuple(tokens), tuple(spans), -1.0, True), query)
    assert list(written.quotes[0].passages) == ids
    assert [hit.id for hit in written.ranking] == [*ids, "b"]


def test_the_command_answers_and_keeps_keys(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*more: str) -> int:
        base = ["--data", str(folder / "data"), "--model", str(folder / "model"), "--search.beams", "4"]
        index = ["--search.max_new_tokens", "60", "--device", "cpu", "--keys.folder", str(tmp_path / "keys")]
        return main(["answer", "riches", *base, *index, *more])

    output = tmp_path / "runs" / "first"
    assert run("--output", str(output)) == 0
    printed = capsys.readouterr().out
    assert "exact match 100.0, F1 100.0 (2 queries)" in printed
    assert "passages: hits@1 100.0, hits@5 100.0 (2 queries)" in printed
    results = Run.load(f"{output}.jsonl")
    assert {q: [hit.id for hit in hits] for q, hits in results.rankings.items()} == {"q1": ["a"], "q2": ["b"]}
    assert main(["evaluate", f"{output}.jsonl", "--data", str(folder / "data")]) == 0
    assert "100" in capsys.readouterr().out
    assert (tmp_path / "keys" / "keys.json").is_file()
    made = (tmp_path / "keys" / "keys.json").stat().st_mtime_ns
    assert run("--output", str(output.with_name("second"))) == 0
    assert (tmp_path / "keys" / "keys.json").stat().st_mtime_ns == made
    one, other = (output.with_name(f"{name}.answers.jsonl").read_bytes() for name in ("first", "second"))
    assert one == other
    records = [json.loads(line) for line in one.splitlines()]
    assert [record["answer"] for record in records] == ["Orla Finn", "the barn"]
    capsys.readouterr()
    assert run("--output", str(tmp_path / "third"), "--keys.kind", "title") == 1
    assert "kind 'sentence', expected 'title'" in capsys.readouterr().err
    assert not (tmp_path / "third.trec").exists()


def test_a_killed_run_goes_on_and_writes_what_a_whole_one_does(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ["answer", "riches", f"--data={folder / 'data'}", f"--model={folder / 'model'}", "--device=cpu"]
    base += ["--search.beams", "4", "--search.max_new_tokens", "60", "--search.batch_size", "1", "--output"]
    monkeypatch.setattr("grls.answer.kept.BATCHES", 1)
    assert main([*base, str(tmp_path / "whole")]) == 0
    asked: list[list[str]] = []
    whole = Riches.answer

    def counted(self: Riches, queries: Any, decided: Any = None) -> Any:
        asked.append([query.id for query in queries])
        if len(asked) == 2:
            raise KeyboardInterrupt
        return whole(self, queries, decided)

    monkeypatch.setattr(Riches, "answer", counted)
    assert main([*base, str(tmp_path / "cut")]) == 130
    assert {file.name for file in tmp_path.glob("cut*")} == {"cut.written.jsonl"}
    assert main([*base, str(tmp_path / "cut"), "--search.beams", "2"]) == 1
    assert main([*base, str(tmp_path / "cut")]) == 0
    assert asked == [["q1"], ["q2"], ["q2"]]
    for ending in (".trec", ".jsonl", ".answers.jsonl"):
        assert (tmp_path / f"cut{ending}").read_bytes() == (tmp_path / f"whole{ending}").read_bytes()


def test_a_query_that_is_too_long_is_its_own_trouble(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder / "data", data)
    long = {"_id": "q3", "text": "who owned the mill " * 300}
    lines = (data / "queries.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    lines.insert(1, json.dumps(long) + "\n")
    (data / "queries.jsonl").write_text("".join(lines), encoding="utf-8")
    qrels = data / "qrels" / "test.tsv"
    qrels.write_text(qrels.read_text(encoding="utf-8") + "q3\ta\t1\n", encoding="utf-8")
    output = tmp_path / "r"
    options = ["--search.beams=4", "--search.max_new_tokens=60", "--search.batch_size=3", "--device=cpu"]
    base = ["answer", "riches", f"--data={data}", f"--model={folder / 'model'}", f"--output={output}"]
    assert main([*base, *options]) == 0
    printed = capsys.readouterr().out
    assert "nothing is written for the query 'q3': its prompt takes" in caplog.text
    assert "room for 964 beside 60 new ones" in caplog.text
    records = [json.loads(line) for line in Path(f"{output}.answers.jsonl").read_text().splitlines()]
    assert {one["query_id"]: (one["answer"], one["ended"], "failed" in one) for one in records} == {
        "q1": ("Orla Finn", True, False), "q2": ("the barn", True, False), "q3": ("", False, True),
    }  # fmt: skip
    assert "3 queries" in printed
    assert "1 without an answer" in printed
    assert Run.load(f"{output}.jsonl").rankings["q3"] == []


def test_an_encoder_decoder_has_positions_for_the_prompt_alone() -> None:
    config = SimpleNamespace(max_position_embeddings=100, is_encoder_decoder=True)
    model = SimpleNamespace(config=config)
    assert [room_of(model, new) for new in (60, 100, 101)] == [100, 100, 0]
    config.is_encoder_decoder = False
    assert [room_of(model, new) for new in (60, 101)] == [40, 0]
    del config.max_position_embeddings
    assert room_of(model, 60) == math.inf


@pytest.mark.parametrize(("wrong", "message"), [
    (["--prompt.chat", "true"], "no chat template"),
    (["--limit", "0"], "--limit"),
    (["--device", "cuda:99"], "cannot use device 'cuda:99'"),
    (["--output", "/proc/nowhere/x"], "/proc/nowhere/x"),
    (["--search.max_new_tokens", "5000"], "room for 0 beside 5000 new ones: lower max_new_tokens"),
    (["--prompt.markers", '["☃", "»"]'], "cannot write the marker '☃'"),
    (["--model", "/nowhere/model.gguf"], "no such file"),
])  # fmt: skip
def test_bad_input_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], message: str
) -> None:
    base = ["--data", str(folder / "data"), "--model", str(folder / "model"), "--output", str(tmp_path / "x")]
    assert message in fails(capsys, "answer", "riches", *base, *wrong)
    assert list(tmp_path.iterdir()) == []


def test_markers_are_found_however_they_are_written(folder: Path) -> None:
    _, tokenizer = load_language_model(str(folder / "model"), "cpu")
    markers = TextMarkers(tokenizer)
    for text in ("so: «", "so:«", "so.\n«", "«", "a «"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert markers.opens(ids), text
    for text in ("so", "so: « it", "»"):
        assert not markers.opens(tokenizer(text, add_special_tokens=False)["input_ids"]), text
    assert tokenizer.decode(markers.closing).strip() == "»"
    assert tokenizer.convert_tokens_to_ids("»") in markers.barred


@pytest.mark.parametrize("marker", ["</s>", "<pad>", "<|eot_id|>", "a<|turn|>"])
def test_a_special_token_is_no_marker(folder: Path, marker: str) -> None:
    """``<|turn|>`` is what the chat template parts turns by; it is not special."""
    _, tokenizer = load_language_model(str(folder / "model"), "cpu")
    tokenizer.add_special_tokens({"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<|eot_id|>"})
    tokenizer.add_tokens(["<|turn|>"])
    tokenizer.chat_template = "{% for m in messages %}<|turn|>{{ m.content }}{% endfor %}"
    corpus = Corpus.from_passages(PASSAGES)
    for markers in ((marker, "»"), ("«", marker)):
        expected = rf"marker {re.escape(repr(marker))} holds .*, a special token .*the option markers"
        raises(ConfigError, expected, TextMarkers, tokenizer, *markers)
        raises(ConfigError, expected, build_keys, corpus, tokenizer, markers=markers)


@pytest.mark.parametrize(("opening", "closing"), [("«", "»"), ("{{", "}}"), ("<", ">"), ("<q>", "</q>")])
def test_markers_of_a_byte_level_tokenizer(opening: str, closing: str) -> None:
    texts = [f'{left}{opening}"so' for left in ("(", "=", ".", "a ", "\n")] * 50
    tokenizer = byte_level(texts, 300)
    markers = TextMarkers(tokenizer, opening, closing)
    for left in ("(", "=", ".", "a ", "\n", "", "ab"):
        ids = tokenizer(left + opening, add_special_tokens=False)["input_ids"]
        assert markers.opens(ids), left
        assert not markers.opens(ids[:-1])
    assert tokenizer.eos_token_id not in markers.barred
    texts = [tokenizer.decode([token]) for token in range(len(tokenizer)) if token not in markers.barred]
    texts.remove("<|end|>")
    assert not any(closing in text for text in texts)
    assert not any(opening in text and not text.endswith(opening) for text in texts)


@pytest.mark.parametrize(("text", "answer", "kinds", "stops"), [
    ("so answer: the barn\n", "the barn", ["thought", "answer"], True),
    ("so answer: the barn", "the barn", ["thought", "answer"], False),
    ("Answer: the barn\nso", "the barn", ["answer", "thought"], False),
    ("answer: the barn « It was red. »", "the barn", ["answer", "quote"], False),
    ("answer: « It was red. »\n", "It was red.", ["answer", "quote"], False),
    ("so « It was red. »\n", "", ["thought", "quote"], False),
    ("answer:\n", "", [], False),
])  # fmt: skip
def test_answers_are_read_off_free_text(
    folder: Path, text: str, answer: str, kinds: list[str], stops: bool
) -> None:
    some = program(folder)
    tokens = some.tokenizer(text.replace("\n", " \n"), add_special_tokens=False)["input_ids"]
    opened = [place for place in range(len(tokens)) if some.markers.opens(tokens[: place + 1])]
    spans = []
    for place in opened:
        last = place + 1 + len(some.keys.index.tokens(3))
        spans.append(Span(place + 1, last, (3,), -1.0, True))
        assert some.keys.index.tokens(3).tolist() == tokens[place + 1 : last]
    written = some._read(Interlaced(tuple(tokens), tuple(spans), -1.0, True))
    assert written.answer.replace(" ", "") == answer.replace(" ", "")
    assert [piece.kind for piece in written.pieces] == kinds
    assert some._stops(tokens, spans) == stops


def test_a_prompt_without_keywords_and_in_turns(folder: Path) -> None:
    _, tokenizer = load_language_model(str(folder / "model"), "cpu")
    plain = PromptOptions("multi", ("<", ">"), keywords=False)
    assert solution(plain, _MULTI[0]).startswith("< A fully grown brindle crane")

    def asked(prompt: PromptOptions, question: str) -> list[int]:
        return prompted(prompt, tokenizer, [question], causal=True)[0]

    def spelled(prompt: PromptOptions) -> str:
        return "".join(tokenizer.decode(asked(prompt, "why")).split())

    assert spelled(plain).endswith("question:why")
    assert spelled(plain).count("question:") == 3
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im|>"]})
    turns = PromptOptions(chat=True)
    for prompt in (turns, PromptOptions()):
        assert tokenizer.convert_tokens_to_ids("<|im|>") not in asked(prompt, "a <|im|> b")
    assert spelled(turns).count("assistant") == 3
    assert spelled(turns).endswith("question:why")
    tokenizer.chat_template = "{{ raise_exception('no system role') }}"
    raises(ConfigError, "refuses the prompt", asked, turns, "why")
    raises(ConfigError, "kind must be one of", PromptOptions, "half")


def test_the_order_is_that_of_the_weights_that_are_documented() -> None:
    """1 + log of the count, by 1 + log of passages by those with the word; cosines."""
    texts, wanted = ["mill mill roof", "roof barn barn barn", "roof cow"], "barn roof"
    words = ("barn", "cow", "mill", "roof")
    idf = np.array([1 + math.log(4 / (1 + sum(word in text.split() for text in texts))) for word in words])

    def vector(text: str) -> np.ndarray:
        counts = np.array([text.split().count(word) for word in words])
        some = np.array([1 + math.log(count) if count else 0.0 for count in counts]) * idf
        return some / np.linalg.norm(some)

    expected = [float(vector(text) @ vector(wanted)) for text in texts]
    rows = TfidfVectorizer(sublinear_tf=True).fit(texts)
    assert (rows.transform(texts) @ rows.transform([wanted]).T).toarray()[:, 0] == pytest.approx(expected)
    assert by_similarity(texts, wanted) == np.argsort([-value for value in expected]).tolist() == [1, 2, 0]
