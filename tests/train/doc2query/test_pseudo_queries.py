"""Pseudo-queries: what is written, what is kept, and the command."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from failing import fails
from llama_small import write_untrained
from small_data import passages, queries, small_retriever

from grls.answer.writer import TextWriter
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_queries
from grls.data.types import Hit, Passage, Query
from grls.errors import ConfigError
from grls.models.load.language import load_language_model
from grls.train.doc2query.generate import (
    FORM,
    QueryForm,
    QueryPrompt,
    QueryWriter,
    Task,
    sift,
)
from grls.train.doc2query.options import Drawing

CORPUS = Corpus.from_passages(passages())


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal model that learned by heart what is asked about each animal's trait."""
    folder = write_untrained(tmp_path_factory.mktemp("model"), data, "passage: query: \n", 128)
    model, tokenizer = load_language_model(str(folder), "cpu")
    form = QueryForm("some", 32, 12)
    prompt = QueryPrompt(tokenizer, True, form)
    single = [query for query in queries() if len(query.evidence) == 1]
    asked = [prompt.source(prompt.passages([CORPUS[n]])) for n in range(len(single))]
    rows = list(zip(asked, prompt.targets([query.text for query in single]), strict=True))
    longest = max(len(source) + len(target) for source, target in rows)
    behind = [[0] * (longest - len(source) - len(target)) for source, target in rows]
    tokens = torch.tensor([[*s, *t, *pad] for (s, t), pad in zip(rows, behind, strict=True)])
    labels = torch.tensor(
        [[-100] * len(s) + t + [-100] * len(pad) for (s, t), pad in zip(rows, behind, strict=True)]
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        optimizer.step()
    assert loss < 0.01
    model.save_pretrained(folder)
    (folder / FORM).write_text(json.dumps(form._asdict()))
    return folder


def written(model: Path, some: list[Task], drawing: Drawing, batch_size: int = 4) -> list[dict[str, Any]]:
    loaded = load_language_model(str(model), "cpu")
    prompt = QueryPrompt(loaded.tokenizer, True, QueryForm.read(model))
    writer = QueryWriter(TextWriter(*loaded, 13, batch_size), prompt, CORPUS, drawing)
    return [*writer.write(some)]


def test_a_query_is_written_for_its_passage(model: Path) -> None:
    some = [Task(n, draw) for n in range(8) for draw in range(2)]
    sure = written(model, some, Drawing(temperature=0.1))
    single = [query.text for query in queries() if len(query.evidence) == 1]
    assert [one["text"] for one in sure] == [text for text in single for _ in range(2)]
    assert sure[3] == {"passage": "otter-quick", "draw": 1, "text": "is the otter quick ?", "ended": True}
    wild = Drawing(temperature=3.0)
    whole = written(model, some, wild)
    assert whole == written(model, some[:5], wild, 2) + written(model, some[5:], wild, 16)
    assert len({one["text"] for one in whole}) > 8
    assert whole != written(model, some, Drawing(temperature=3.0, seed=1))


def test_a_passage_that_is_too_long_has_no_query_and_the_others_do(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = Corpus.from_passages([CORPUS[0], Passage("long", "the otter is calm . " * 30), CORPUS[1]])
    loaded = load_language_model(str(model), "cpu")
    prompt = QueryPrompt(loaded.tokenizer, True, QueryForm.read(model)._replace(passage_tokens=200))
    sure = Drawing(temperature=0.1)
    some = [Task(0, 0), Task(1, 0), Task(1, 1), Task(2, 0)]
    found = [*QueryWriter(TextWriter(*loaded, 13, 4), prompt, corpus, sure).write(some)]
    assert [(bool(one["text"]), "failed" in one) for one in found] == [
        (True, False), (False, True), (False, True), (True, False),
    ]  # fmt: skip
    assert [one for one in found if "failed" not in one] == written(model, [Task(0, 0), Task(1, 0)], sure)
    assert "room for 115 beside 13 new ones" in found[1]["failed"]
    assert caplog.text.count("nothing is written for the passage 'long'") == 1
    assert sift(found, corpus).dropped == {"not read by the model": 2}
    narrow = QueryWriter(TextWriter(*loaded, 127), prompt, corpus, Drawing())
    with pytest.raises(ConfigError, match="tokens before anything is asked"):
        next(narrow.write(some))


class Finds:
    """A retriever that finds the same passages for every query."""

    def __init__(self, *ids: str):
        self.ids = ids
        self.asked: list[str] = []

    def retrieve(self, some: Any, k: int, allow: Any = None) -> list[list[Hit]]:
        self.asked += [query.text for query in some]
        return [[Hit(name, 0.0) for name in self.ids[:k]] for _ in some]


def record(text: str, passage: str = "otter-calm", draw: int = 0, ended: bool = True) -> dict[str, Any]:
    return {"passage": passage, "draw": draw, "text": text, "ended": ended}


def test_what_is_no_query_is_dropped_and_counted() -> None:
    records = [
        record("is it calm ?"),
        record("Is it calm", draw=1),
        record("is it calm ?", "lynx-calm"),
        record(" ?! ", draw=2),
        record("what is it that", draw=3, ended=False),
        record("The otter is calm!", draw=4),
    ]
    found = sift(records, CORPUS)
    assert found.queries == [
        Query("pseudo-otter-calm-0", "is it calm ?", ("otter-calm",)),
        Query("pseudo-lynx-calm-0", "is it calm ?", ("lynx-calm",)),
    ]
    assert found.dropped == {"written before": 1, "empty": 1, "cut off": 1, "copies a passage": 1}
    assert (found.searched, found.rate) == (0, 0.0)


def test_a_query_must_lead_back_to_its_passage() -> None:
    asked = [("who ?",), ("what ?", "lynx-calm"), ("why ?", "r0"), ("",)]
    records = [record(*one) for one in asked]
    finds = Finds("DONE", "lynx-calm", "otter-calm")
    found = sift(records, CORPUS, [finds], k=2)
    assert [query.id for query in found.queries] == ["pseudo-lynx-calm-0"]
    assert finds.asked == ["who ?", "what ?", "why ?"]
    assert (found.searched, found.rate) == (3, pytest.approx(1 / 3))
    assert found.dropped == {"empty": 1, "not found again": 2}
    again = sift(records, CORPUS, [finds], k=3).queries
    assert [q.id for q in again] == ["pseudo-otter-calm-0", "pseudo-lynx-calm-0"]


def options(data: Path, model: Path, output: Path, *more: str) -> list[str]:
    return ["prepare", "pseudo-queries", f"--data={data}", f"--model={model}", f"--output={output}",
            "--device=cpu", "--draw.temperature=0.1", *more]  # fmt: skip


def test_the_command_writes_what_leads_back(
    data: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "pseudo.jsonl"
    assert main(options(data, model, output, "--draw.queries=2", "--k=1")) == 0
    said = capsys.readouterr().out
    kept = {query.id: query for query in read_queries(output)}
    for query in queries():
        if len(query.evidence) == 1:
            name = f"pseudo-{query.evidence[0]}-0"
            assert kept[name] == Query(name, query.text, query.evidence)
    assert "20 queries written" in said
    about = json.loads((tmp_path / "pseudo.jsonl.manifest.json").read_text())
    assert about["kept"] == len(kept)
    assert about["kept"] + sum(about["dropped"].values()) == 20
    assert about["dropped"]["written before"] >= 8
    assert f"{len(kept)} of 20 pseudo-queries kept" in said
    assert f"written before {about['dropped']['written before']}" in said


def test_another_filter_needs_no_new_queries(
    data: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "pseudo.jsonl"
    assert main(options(data, model, output, "--draw.queries=1")) == 0
    capsys.readouterr()
    small_retriever(data).save_pretrained(tmp_path / "retriever")
    again = ["--draw.queries=1", "--retrievers", str(tmp_path / "retriever"), "--k=20"]
    assert main(options(data, model, output, *again)) == 0
    said = capsys.readouterr().out
    assert "queries written" not in said
    assert re.search(r"round trip: 100\.0% of \d+ find their passages among the 20 best", said)
    line = fails(capsys, *options(data, model, output, "--draw.queries=2"))
    assert "begun with other settings (queries)" in line


def test_a_run_that_keeps_nothing_says_so(
    data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("grls.commands.propositions.load_named", lambda *_: Finds("DONE"))
    line = fails(capsys, *options(data, model, tmp_path / "out.jsonl", "--draw.queries=1"))
    assert "none of the pseudo-queries is kept (" in line
    assert not (tmp_path / "out.jsonl").exists()
    plain = tmp_path / "plain"
    plain.mkdir()
    assert "cannot load a generator" in fails(capsys, *options(data, plain, tmp_path / "out.jsonl"))
