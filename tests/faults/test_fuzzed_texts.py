"""Text files changed at random: runs, queries, corpora, judgements, answers, options, records of work.

What comes is an error of grls that names the file, or what a plain reading of the file says.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fuzzing import changed_bytes, changed_json, changed_records, fuzzed, tried
from hypothesis import given
from hypothesis import strategies as st
from small_data import write_small

from data_prep.raw import read_csv, read_json_lines, read_tsv
from grls.answer.ralm.reranker import example_settings, read_examples
from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.dataset import any_order, check_data, proofs_of, read_qrels, read_queries, read_split
from grls.data.types import Chain, Hit
from grls.evaluation.answers import read_answers, write_answers
from grls.fitting.journal import fit_journal as steps_of
from grls.io.files import named_lines, write_json
from grls.io.recipes import recipe_values
from grls.io.work import GrowingFile
from grls.io.work import Journal as Measurements
from grls.runs.portions import RunInfo, write_info
from grls.runs.results import Retrieved, write_results
from grls.runs.run import Run
from grls.runs.trec import write_run
from grls.train.doc2query.generate import FORM, QueryForm

HITS = [Hit("r0", 2.5), Hit("otter-calm", 1.25), Hit("lynx-quick", -3.0)]
CHAIN = Chain((Hit("r1", -0.25), Hit(DONE_ID, -0.5)), -0.75, True)
METADATA = [
    {"year": 2000, "open": True, "tags": ["a", "b"]}, {"year": 1999.5}, {"year": "2000"}, {}, {"open": None},
]  # fmt: skip
Change = Callable[[bytes, st.DataObject], bytes]


class Form(NamedTuple):
    """A kind of file: its name among those of ``made``, how it is changed, and how it is read."""

    file: str
    change: Change
    read: Callable[[Path], Any]


def corpus_of(file: Path) -> Any:
    corpus = Corpus.read(file)
    records = list(corpus.records())
    assert corpus.numbers([record["_id"] for record in records]) == list(range(len(corpus)))
    assert len(corpus.fingerprint) == len(corpus.metadata_fingerprint) == 64
    return [record["_id"] for record in records]


def examples_of(file: Path) -> Any:
    passages = Corpus.read(file.parent / "data/corpus.jsonl")
    return example_settings(file), read_examples(file, passages)


def queries_of(file: Path) -> Any:
    queries = read_queries(file)
    assert [any_order(query) for query in queries]
    assert all(all(isinstance(one, str) for one in proof) for query in queries for proof in proofs_of(query))
    return [query.id for query in queries]


def split_of(file: Path) -> Any:
    folder = file.parent if file.parent.name != "qrels" else file.parent.parent
    corpus = Corpus.read(folder)
    check_data(folder, corpus)
    return [query.id for query in read_split(folder, "dev", corpus)[0]]


def run_of(file: Path) -> Any:
    run = Run.load(file)
    assert run.name
    assert all(isinstance(hit.score, float) for hits in run.rankings.values() for hit in hits)
    return list(run.rankings)


def growing(file: Path) -> Any:
    kept = GrowingFile(file, {"seed": 1})
    kept.close()
    return [record.get("n") for record in kept]


def measurements(file: Path) -> Any:
    kept = Measurements(file, {"seed": 1})
    kept.measured({"n": 0}, lambda: 1)
    kept.close()


def steps(file: Path) -> Any:
    for settings in ({"seed": 1}, {"seed": 2}):
        journal = steps_of(file.parent, settings)
        try:
            assert "plan" not in journal.known
        finally:
            journal.close()


FORMS = {
    "trec": Form("run.trec", changed_bytes, run_of),
    "results": Form("results.jsonl", changed_records, run_of),
    "manifest of a run": Form("told.info.json", changed_json, lambda f: run_of(f.with_name("told.trec"))),
    "corpus": Form("data/corpus.jsonl", changed_records, corpus_of),
    "queries": Form("data/queries.jsonl", changed_records, queries_of),
    "qrels": Form("data/qrels/dev.tsv", changed_bytes, lambda file: list(read_qrels(file))),
    "split, corpus": Form("data/corpus.jsonl", changed_records, split_of),
    "split, queries": Form("data/queries.jsonl", changed_records, split_of),
    "split, qrels": Form("data/qrels/dev.tsv", changed_bytes, split_of),
    "ids": Form("ids.txt", changed_bytes, lambda file: named_lines(file, "passage ids.")),
    "table": Form("table.tsv", changed_bytes, lambda file: list(read_tsv(file, ("id", "text")))),
    "quoted table": Form("table.csv", changed_bytes, lambda file: list(read_csv(file, ("id", "text")))),
    "raw": Form("data/corpus.jsonl", changed_records, lambda file: list(read_json_lines(file))),
    "answers": Form("answers.jsonl", changed_records, lambda file: list(read_answers(file))),
    "examples": Form("examples.jsonl", changed_records, examples_of),
    "options": Form("options.yaml", changed_bytes, lambda file: recipe_values([str(file), str(file)])),
    "growing": Form("growing.jsonl", changed_records, growing),
    "measurements": Form("measurements.jsonl", changed_records, measurements),
    "steps": Form("fit/fit.jsonl", changed_records, steps),
    "form of queries": Form(f"generator/{FORM}", changed_json, lambda file: QueryForm.read(file.parent)),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid file of every form."""
    place = tmp_path_factory.mktemp("texts")
    data = write_small(place / "data")
    with_metadata(data)
    corpus, asked = Corpus.read(data), read_queries(data)[:2]
    rankings = {query.id: HITS for query in asked}
    write_run(place / "run.trec", rankings)
    write_run(place / "told.trec", rankings)
    info = RunInfo("bm25", "mine", "single", corpus.fingerprint, "q", "data", "dev", "bm25", ("a",))
    write_info(place / "told", info)
    kept = [Retrieved.ranked(asked[0].id, HITS), Retrieved.chained(asked[1].id, CHAIN)]
    write_results(place / "results.jsonl", asked, corpus, "bm25", kept)
    (place / "ids.txt").write_text("r0\nr1\notter-calm\n")
    (place / "table.tsv").write_text("a\tone\nb\ttwo\n")
    (place / "table.csv").write_text('id,more,text\na,1,"one, two"\nb,2,three\n')
    quote = {"text": "x", "passages": ["r0"], "closed": True}
    lines = [{"query_id": name, "answer": "yes", "ended": True, "quotes": [quote]} for name in ("q0", "q1")]
    write_answers(place / "answers.jsonl", lines)
    example = {"prefix": "the", "passages": ["r0", "r1"], "scores": [0.5, -1.0]}
    write_answers(place / "examples.jsonl", [{"settings": {"every": 3}}, example])
    options = "model:\n  class_path: a.B\n  init_args: {lr: 1e-3, n: 2}\ndata: &d\n  split: dev\nmore: *d\n"
    (place / "options.yaml").write_text(options)
    write_records(place)
    return place


def with_metadata(data: Path) -> None:
    passages = list(Corpus.read(data))
    metadata = [METADATA[number % len(METADATA)] for number in range(len(passages))]
    Corpus.from_passages(passages, metadata=metadata).write(data / "corpus.jsonl")


def write_records(place: Path) -> None:
    """Files of work that goes on."""
    growing = GrowingFile(place / "growing.jsonl", {"seed": 1})
    growing.add([{"n": n} for n in range(3)])
    growing.close()
    known = Measurements(place / "measurements.jsonl", {"seed": 1})
    for n in range(2):
        known.measured({"n": n}, lambda: {"ndcg": 0.5})
    known.close()
    journal = steps_of(place / "fit", "the data")
    journal.put("bm25", {"seconds": 0.5, "systems": []})
    journal.close()
    (place / "generator").mkdir()
    write_json(place / "generator" / FORM, QueryForm()._asdict())


@pytest.mark.parametrize("name", FORMS)
def test_what_is_read_is_refused_or_plain(made: Path, name: str) -> None:
    form = FORMS[name]
    file = made / form.file
    content = file.read_bytes()

    @fuzzed(20)
    @given(st.data())
    def changed(data: st.DataObject) -> None:
        file.write_bytes(form.change(content, data))
        tried(lambda: form.read(file), file, file.parent)

    try:
        tried(lambda: form.read(file), file.parent)
        changed()
    finally:
        file.write_bytes(content)
