"""Interlaced retrieval as a program and as a command."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from grls.cli import main
from grls.corpus import Corpus
from grls.dataset import write_dataset
from grls.decode.interleave import Interlaced, InterleaveOptions, Span
from grls.decode.markers import Markers
from grls.errors import ConfigError
from grls.evaluation.metrics.answer_f1 import answer_f1, answer_scores
from grls.evaluation.results import read_results
from grls.models.build import train_tokenizer
from grls.models.language import load_language_model
from grls.programs.keys import build_keys
from grls.programs.prompts import _MULTI, Prompt, read_answer
from grls.programs.riches import Riches
from grls.programs.view import page, terminal
from grls.types import Passage, Query

PASSAGES = [
    Passage("a", "The mill was built in 1820. Orla Finn owned it.", "Mill"),
    Passage("b", "The barn burned down. It was red.", "Barn"),
    Passage("c", "<b>Rain</b> fell on Monday.", "Rain & wind"),
]
QUERIES = [
    Query("q1", "who owned the mill", ("a",), ("Orla Finn",), '{"answers": ["Orla Finn"]}'),
    Query("q2", "what was red", ("b",), ("the barn",), '{"answers": ["the barn"]}'),
]
TEXTS = ["answer: Orla Finn", "question: « The barn » answer: \n", " «", " »", "« »", ": « It"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set and a model that learned by heart to quote for the first question and to answer."""
    path = tmp_path_factory.mktemp("riches")
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
    write_dataset(path / "data", PASSAGES, QUERIES, {"test": qrels})
    seen = path / "seen"
    seen.mkdir()
    Corpus.from_passages([*PASSAGES, Passage("t", " ".join(TEXTS))]).write(seen / "corpus.jsonl")
    prompts = "\n".join(json.dumps({"_id": f"p{n}", "text": text}) for n, text in enumerate(TEXTS))
    (seen / "queries.jsonl").write_text(prompts + "\n", encoding="utf-8")
    tokenizer = train_tokenizer(seen, 400)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    _learn(model, tokenizer)
    model.save_pretrained(path / "model")
    tokenizer.save_pretrained(path / "model")
    return path


WRITTEN = {"q1": "owner: « Orla Finn owned it. » answer: Orla Finn", "q2": "« It was red. » answer: the barn"}


def _learn(model: Any, tokenizer: Any) -> None:
    rows = []
    for query in QUERIES:
        prompt = Prompt().inputs(tokenizer, [query.text])[0]
        assert prompt.pop() == tokenizer.eos_token_id  # this tokenizer adds it, and the program takes it away
        target = tokenizer(WRITTEN[query.id], add_special_tokens=False)["input_ids"]
        rows.append((prompt, [*target, tokenizer.eos_token_id]))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(150):
        loss = torch.zeros(())
        for prompt, target in rows:
            tokens = torch.tensor([[*prompt, *target]])
            labels = torch.tensor([[-100] * len(prompt) + target])
            loss = loss + model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss) < 0.2
    model.eval()


def program(folder: Path, **options: Any) -> Riches:
    model, tokenizer = load_language_model(str(folder / "model"), "cpu")
    corpus = Corpus.read(folder / "data")
    keys = build_keys(corpus, tokenizer, "sentence", options.pop("anywhere", False))
    given = InterleaveOptions(**({"beams": 4, "max_new_tokens": 60} | options))
    return Riches(model, tokenizer, corpus, keys, None, given)


@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.parametrize("beam", ["adaptive", "full", "greedy"])
def test_a_model_that_learned_to_quote_quotes(folder: Path, anywhere: bool, beam: Any) -> None:
    first, second = program(folder, anywhere=anywhere, beam=beam).answer(QUERIES)
    assert first is not None
    assert second is not None
    assert [p.kind for p in first.pieces] == ["thought", "quote", "answer"]
    assert first.quotes[0].text.replace(" ", "") == "OrlaFinnownedit."
    assert first.quotes[0].keys == ("Orla Finn owned it.",)
    assert [hit.id for hit in first.ranking()] == ["a"]
    assert first.answer == "Orla Finn"
    assert first.ended
    assert [hit.id for hit in second.ranking()] == ["b"]
    assert second.answer == "the barn"


def test_an_unclosed_quote_retrieves_nothing(folder: Path) -> None:
    some = program(folder)
    whole = some.answer(QUERIES)[0]
    assert whole is not None
    opened = len(some.tokenizer("owner: « Orla", add_special_tokens=False)["input_ids"])
    written = program(folder, max_new_tokens=opened, beams=1).answer(QUERIES[:1])[0]
    assert written is not None
    assert not written.ended
    assert [quote.closed for quote in written.quotes] == [False]
    assert written.ranking() == []
    assert written.answer == ""
    assert "not closed" in terminal(QUERIES[0], written, ("«", "»"), colour=False)


def test_an_invented_quote_is_a_fault(folder: Path) -> None:
    some = program(folder)
    invented = Interlaced((5, 6, 7), (Span(0, 3, (0,), -1.0, True),), -1.0, True)
    with pytest.raises(RuntimeError, match="not in the key"):
        some._read(invented)


def test_the_page_links_quotes_to_their_source(folder: Path) -> None:
    some = program(folder)
    outputs = some.answer(QUERIES)
    html = page("A <page>", QUERIES, [outputs[0], None], some.corpus, ("«", "»"))
    assert "A &lt;page&gt;" in html
    assert 'href="#s0-0"' in html
    assert 'id="s0-0"' in html
    assert "The mill was built in 1820." in html
    assert "dead end" in html
    text = terminal(QUERIES[0], outputs[0], ("«", "»"), colour=False)
    assert "-> a" in text
    assert "\x1b[" not in text
    assert "\x1b[1;32m" in terminal(QUERIES[0], outputs[0], ("«", "»"))


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "runs" / "riches"
    code = main(
        ["riches", "--data", str(folder / "data"), "--model", str(folder / "model"), "--output", str(output),
         "--beams", "4", "--max_new_tokens", "60", "--device", "cpu"]
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "exact match 100.0, F1 100.0 (2 queries)" in printed
    results = read_results(f"{output}.jsonl")
    assert {q: [hit.id for hit in hits] for q, hits in results.rankings.items()} == {"q1": ["a"], "q2": ["b"]}
    lines = Path(f"{output}.answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["answer"] for line in lines] == ["Orla Finn", "the barn"]
    assert Path(f"{output}.html").is_file()
    assert main(["evaluate", "--run", f"{output}.jsonl", "--data", str(folder / "data")]) == 0
    assert "100" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--chat", "true"], "no chat template"),
        (["--limit", "0"], "--limit"),
        (["--max_new_tokens", "5000"], "1024 positions"),
        (["--markers", '["☃", "»"]'], "cannot write the marker '☃'"),
        (["--markers", '["«", "«"]'], "two different texts"),
        (["--model", "/nowhere/model"], "no such folder"),
        (["--model", "/nowhere/model.gguf"], "no such file"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], message: str
) -> None:
    base = ["--data", str(folder / "data"), "--model", str(folder / "model"), "--output", str(tmp_path / "x")]
    assert main(["riches", *base, *wrong]) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_markers_are_found_however_they_are_written(folder: Path) -> None:
    _, tokenizer = load_language_model(str(folder / "model"), "cpu")
    markers = Markers.of(tokenizer)
    for text in ("so: «", "so:«", "so.\n«", "«", "a «"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert markers.opens(ids), text
    for text in ("so", "so: « it", "»"):
        assert not markers.opens(tokenizer(text, add_special_tokens=False)["input_ids"]), text
    assert tokenizer.decode(markers.closing).strip() == "»"
    for token in markers.barred.tolist():
        text = tokenizer.decode([token])
        assert "»" in text or not text.endswith("«")


def test_a_prompt_without_keywords_and_in_turns(folder: Path) -> None:
    _, tokenizer = load_language_model(str(folder / "model"), "cpu")
    plain = Prompt("multi", ("<", ">"), keywords=False)
    assert plain.solution(_MULTI[0]).startswith("< A fully grown brindle crane")
    asked = "".join(tokenizer.decode(plain.inputs(tokenizer, ["why"])[0]).split())
    assert asked.removesuffix("</s>").endswith("question:why")
    assert asked.count("question:") == 3
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    turned = "".join(tokenizer.decode(Prompt(chat=True).inputs(tokenizer, ["why"])[0]).split())
    assert turned.count("assistant") == 3
    assert turned.endswith("question:why")
    with pytest.raises(ConfigError, match="unknown prompt"):
        Prompt("half").inputs(tokenizer, ["why"])  # type: ignore[arg-type]


def test_an_answer_is_the_end_of_its_line() -> None:
    assert read_answer("so answer: no, answer: 14 sheep \nquestion: x") == "14 sheep"
    assert read_answer("nothing") == ""


def test_answer_scores_follow_squad() -> None:
    assert answer_scores("The barn!", ["a Barn"]) == (1.0, 1.0)
    assert answer_scores("red barn", ["the barn", "x"]) == (0.0, pytest.approx(2 / 3))
    assert answer_scores("", ["the"]) == (1.0, 1.0)
    assert answer_scores("", ["barn"]) == (0.0, 0.0)
    assert answer_f1(["barn", "cow"], [["barn"], ["a b"]]) == {"exact_match": 0.5, "f1": 0.5}
    with pytest.raises(ValueError, match="without accepted answers"):
        answer_scores("x", [])
    assert np.isclose(answer_scores("a b b", ["b b c"])[1], 2 * 2 / 5)
