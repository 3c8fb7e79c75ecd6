"""Pseudo-queries: chains, what is written, what is kept, and the command."""

import json
from collections import Counter
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
from grls.data.neighbours import Neighbours
from grls.data.types import Hit, Query
from grls.errors import ConfigError
from grls.models.load.language import load_language_model
from grls.train.doc2query.generate import (
    FORM,
    Drawing,
    QueryForm,
    QueryPrompt,
    QueryWriter,
    Task,
    sift,
    tasks,
)

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


def links(*lists: list[int]) -> Neighbours:
    return Neighbours.of_lists(list(lists), 2, "hand")


def test_a_chain_follows_links_and_never_comes_back() -> None:
    """From 0 to 1 or 2; 1 leads back to 0 alone, 2 to 3, and 3 nowhere."""
    near = links([1, 2], [0], [3, 0], [])
    found = tasks([0, 1, 2, 3], near, Drawing(queries=20, hops=3))
    counts = Counter(task.chain for task in found)
    assert set(counts) == {(0, 2, 3), (1, 0, 2), (2, 0, 1)}
    assert counts[1, 0, 2] == 20
    assert max(counts[0, 2, 3], counts[2, 0, 1]) < 20, "some draws come to a dead end"
    two = Counter(task.chain for task in tasks([0], near, Drawing(queries=20, hops=2)))
    assert set(two) == {(0, 1), (0, 2)}
    assert tasks([0, 3], None, Drawing(queries=2)) == [Task((n,), draw) for n in (0, 3) for draw in (0, 1)]
    again, other = (tasks([0, 1, 2], near, Drawing(20, 2, seed=seed)) for seed in (0, 1))
    assert again == tasks([0, 1, 2], near, Drawing(20, 2)) != other


def test_chains_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="several hops need links"):
        tasks([0], None, Drawing(hops=2))
    with pytest.raises(ConfigError, match="no chain of 3 passages"):
        tasks([0], links([1], []), Drawing(hops=3))
    for options in {"queries": 0}, {"hops": 0}:
        with pytest.raises(ConfigError, match="must be at least 1, got 0"):
            Drawing(**options)
    for wrong in {"temperature": 0.0}, {"top_p": 0.0}, {"top_p": 1.1}:
        with pytest.raises(ConfigError, match="must be above 0"):
            Drawing(**wrong)


def written(model: Path, some: list[Task], drawing: Drawing, batch_size: int = 4) -> list[dict[str, Any]]:
    loaded = load_language_model(str(model), "cpu")
    prompt = QueryPrompt(loaded.tokenizer, True, QueryForm.read(model))
    return QueryWriter(TextWriter(*loaded, 13, batch_size), prompt, CORPUS, drawing).write(some)


def test_a_query_is_written_for_its_passage(model: Path) -> None:
    some = [Task((n,), draw) for n in range(8) for draw in range(2)]
    sure = written(model, some, Drawing(temperature=0.1))
    single = [query.text for query in queries() if len(query.evidence) == 1]
    assert [one["text"] for one in sure] == [text for text in single for _ in range(2)]
    assert sure[3] == {"chain": ["otter-quick"], "draw": 1, "text": "is the otter quick ?", "ended": True}
    wild = Drawing(temperature=3.0, top_p=1.0)
    whole = written(model, some, wild)
    assert whole == written(model, some[:5], wild, 2) + written(model, some[5:], wild, 16)
    assert len({one["text"] for one in whole}) > 8
    assert whole != written(model, some, Drawing(temperature=3.0, top_p=1.0, seed=1))


def test_a_chain_is_read_from_its_first_passage_or_whole(model: Path) -> None:
    read: list[list[list[int]]] = []

    class Spy(TextWriter):
        def write(self, prompts: Any, *rest: Any, **named: Any) -> Any:
            read.append([list(prompt) for prompt in prompts])
            return super().write(prompts, *rest, **named)

    loaded = load_language_model(str(model), "cpu")
    prompt = QueryPrompt(loaded.tokenizer, True, QueryForm.read(model))
    for reads in ("first", "all"):
        records = QueryWriter(Spy(*loaded, 5), prompt, CORPUS, Drawing(reads=reads)).write([Task((0, 8), 0)])
        assert records[0]["chain"] == ["otter-calm", "r0"]
    first, rule = prompt.passages([CORPUS[0], CORPUS[8]])
    assert read == [[prompt.source([first])], [prompt.source([first, rule])]]


def test_a_chain_that_is_too_long_has_no_query_and_the_others_do(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    some = [Task((0,), 0), Task(tuple(range(10)) * 2, 0), Task(tuple(range(10)) * 2, 1), Task((1,), 0)]
    found = written(model, some, Drawing(temperature=0.1))
    assert [(bool(one["text"]), "failed" in one) for one in found] == [
        (True, False), (False, True), (False, True), (True, False),
    ]  # fmt: skip
    assert [one for one in found if "failed" not in one] == written(
        model, [some[0], some[3]], Drawing(temperature=0.1)
    )
    assert "room for 115 beside 13 new ones" in found[1]["failed"]
    assert caplog.text.count("nothing is written for the passages 'otter-calm', ") == 1
    assert sift(found, CORPUS, None).dropped == {"too long to be read": 2}
    loaded = load_language_model(str(model), "cpu")
    prompt = QueryPrompt(loaded.tokenizer, True, QueryForm.read(model))
    narrow = QueryWriter(TextWriter(*loaded, 127), prompt, CORPUS, Drawing())
    with pytest.raises(ConfigError, match="tokens before anything is asked"):
        narrow.write(some)


class Finds:
    """A retriever that finds the same passages for every query."""

    def __init__(self, *ids: str):
        self.ids = ids
        self.asked: list[str] = []

    def retrieve(self, some: Any, k: int, allow: Any = None) -> list[list[Hit]]:
        self.asked += [query.text for query in some]
        return [[Hit(name, 0.0) for name in self.ids[:k]] for _ in some]


def record(text: str, *chain: str, draw: int = 0, ended: bool = True) -> dict[str, Any]:
    return {"chain": list(chain or ["otter-calm"]), "draw": draw, "text": text, "ended": ended}


def test_what_is_no_query_is_dropped_and_counted() -> None:
    records = [
        record("is it calm ?"),
        record("Is it calm", draw=1),
        record("is it calm ?", "lynx-calm"),
        record(" ?! ", draw=2),
        record("what is it that", draw=3, ended=False),
        record("The otter is calm!", draw=4),
        record("The otter is calm!", "r0", "otter-calm"),
    ]
    found = sift(records, CORPUS, None)
    assert found.queries == [
        Query("pseudo-otter-calm-0", "is it calm ?", ("otter-calm",)),
        Query("pseudo-lynx-calm-0", "is it calm ?", ("lynx-calm",)),
    ]
    assert found.dropped == {"written before": 1, "empty": 1, "cut off": 1, "copies a passage": 2}
    assert (found.searched, found.rate) == (0, 0.0)


def test_a_query_must_lead_back_to_its_first_passage() -> None:
    asked = [("who ?",), ("what ?", "lynx-calm"), ("why ?", "r0", "otter-calm"), ("",)]
    records = [record(*one) for one in asked]
    finds = Finds("DONE", "lynx-calm", "otter-calm")
    found = sift(records, CORPUS, finds, k=2)
    assert [query.id for query in found.queries] == ["pseudo-lynx-calm-0"]
    assert finds.asked == ["who ?", "what ?", "why ?"]
    assert (found.searched, found.rate) == (3, pytest.approx(1 / 3))
    assert found.dropped == {"empty": 1, "not found again": 2}
    again = sift(records, CORPUS, finds, k=3).queries
    assert [q.id for q in again] == ["pseudo-otter-calm-0", "pseudo-lynx-calm-0"]
    with pytest.raises(ConfigError, match="k must be at least 1"):
        sift(records, CORPUS, finds, k=0)


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


def test_chains_are_written_for_and_another_filter_needs_no_new_queries(
    data: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near, output = tmp_path / "near", tmp_path / "pseudo.jsonl"
    Neighbours.of_lists([[8], [9], [8], [9], [8], [9], [8], [9], [], []], 1, "hand").write(
        near, Corpus.read(data)
    )
    hops = ["--draw.queries=1", "--draw.hops=2", f"--links={near}"]
    assert main(options(data, model, output, *hops, "--draw.reads=first")) == 0
    said = capsys.readouterr().out
    assert "not written: 2 chains that found no further passage" in said
    assert read_queries(output) == [
        Query(f"pseudo-{q.evidence[0]}-0", q.text, (q.evidence[0], f"r{n % 2}"))
        for n, q in enumerate(q for q in queries() if len(q.evidence) == 1)
    ]
    small_retriever(data).save_pretrained(tmp_path / "retriever")
    again = [*hops, "--draw.reads=first", f"--retriever={tmp_path / 'retriever'}", "--k=20"]
    assert main(options(data, model, output, *again)) == 0
    said = capsys.readouterr().out
    assert "queries written" not in said
    assert "round trip: 100.0% of 8 find their passage among the 20 best" in said
    line = fails(capsys, *options(data, model, output, "--draw.queries=1"))
    assert "begun with other settings (hops, links, reads)" in line


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--k=0"], "--k must be at least 1"),
        (["--limit=0"], "--limit must be at least 1"),
        (["--draw.queries=0"], "must be at least 1, got 0"),
        (["--draw.hops=2"], "several hops need links"),
        (["--links=none"], "no such file"),
    ],
)
def test_options_of_the_command_that_cannot_work(
    data: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], named: str
) -> None:
    assert named in fails(capsys, *options(data, model, tmp_path / "out.jsonl", *more))


def test_a_run_that_keeps_nothing_says_so(
    data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("grls.retrieve.bm25.BM25Retriever", lambda corpus, analyzer: Finds("DONE"))
    line = fails(capsys, *options(data, model, tmp_path / "out.jsonl", "--draw.queries=1"))
    assert "none of the pseudo-queries is kept (" in line
    assert not (tmp_path / "out.jsonl").exists()
    plain = tmp_path / "plain"
    plain.mkdir()
    assert "cannot load a generator" in fails(capsys, *options(data, plain, tmp_path / "out.jsonl"))
