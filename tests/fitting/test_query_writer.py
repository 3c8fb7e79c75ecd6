"""Queries of a query generator in the place of parts of sentences, where there are none to learn from."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fit_helpers import WORDS_ALONE, fit_options, write_fit_data
from llama_small import write_llama
from small_data import scratch

from grls.answer.writer import Continuation, TextWriter
from grls.data.corpus import Corpus
from grls.errors import ConfigError
from grls.fitting import pseudo as query_writer
from grls.fitting.pseudo import WrittenQueries, refuse_no_query_writer, written_queries
from grls.fitting.run import fit_dataset, plan_dataset
from grls.train.doc2query.form import FORM


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fit_data(tmp_path_factory.mktemp("writer") / "data", "test")


@pytest.fixture(scope="module")
def t5(data: Path) -> str:
    folder = data.parent / "t5"
    model, tokenizer = scratch(data).load()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A generator that asks with the words of the passage; returns the prompts that it has read."""
    read: list[str] = []

    def write(
        self: TextWriter, prompts: Sequence[Sequence[int]], decided: Any = None, draws: Any = None
    ) -> list[Continuation]:
        texts = [self.tokenizer.decode(prompt, skip_special_tokens=True) for prompt in prompts]
        read.extend(texts)
        return [Continuation(f"who is {' '.join(text.split()[-4:])} ?", 8, True) for text in texts]

    monkeypatch.setattr(TextWriter, "write", write)
    return read


def test_an_encoder_decoder_reads_the_passage_alone(data: Path, t5: str, written: list[str]) -> None:
    corpus = Corpus.read(data)
    made = written_queries(t5, corpus, 100, 0, {"pseudo-1"}, "cpu")
    assert len(written) == len(corpus)
    assert not any("passage:" in text or "query:" in text for text in written)
    assert made.queries
    assert "pseudo-1" not in {query.id for query in made.queries}
    assert all(corpus.numbers(query.evidence) != [None] for query in made.queries)
    assert WrittenQueries.of_record(t5, json.loads(json.dumps(made.record()))) == made


def test_a_query_generator_of_ours_reads_the_form_of_its_training(
    data: Path, t5: str, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_writer, "_PassageAlone", None)  # it is not made
    (Path(t5) / FORM).write_text('{"passages": "one", "passage_tokens": 64, "query_tokens": 16}')
    try:
        written_queries(t5, Corpus.read(data), 3, 0, (), "cpu")
    finally:
        (Path(t5) / FORM).unlink()
    assert len(written) == 3


def test_it_ends_when_its_time_is_up(
    data: Path, t5: str, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_writer, "_PORTION", 4)
    written_queries(t5, Corpus.read(data), 100, 0, (), "cpu", seconds=0.0)
    assert len(written) == 4


def test_a_fit_learns_from_the_written_queries_and_says_so(
    data: Path,
    t5: str,
    written: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = fit_options(**WORDS_ALONE, pseudo_model=t5)
    plan = plan_dataset(str(data), tmp_path / "plan", options)
    assert f"{t5} writes queries in place of the parts of sentences" in plan
    assert not written
    fit_dataset(str(data), tmp_path / "out", options)
    assert f"pseudo-queries, written by {t5}, stand in for them" in capsys.readouterr().out
    texts = (tmp_path / "out" / "data" / "queries.jsonl").read_text()
    assert "who is" in texts
    asked = len(written)
    fit_dataset(str(data), tmp_path / "out", options, shown=False)  # what is written is kept
    assert len(written) == asked


def test_with_training_queries_it_writes_nothing(
    tmp_path: Path, t5: str, written: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_fit_data(tmp_path / "data")
    fit_dataset(str(data), tmp_path / "out", fit_options(**WORDS_ALONE, pseudo_model=t5))
    assert f"{t5} writes nothing: there are training queries" in capsys.readouterr().out
    assert not written


def test_what_writes_no_queries_is_refused_before_anything_else(data: Path, tmp_path: Path) -> None:
    llama = str(write_llama(tmp_path / "llama", data))
    for name, said in (("/no/folder", "/no/folder"), (llama, "not trained to write queries")):
        with pytest.raises(ConfigError, match=said):
            refuse_no_query_writer(name)
        with pytest.raises(ConfigError, match=said):
            fit_dataset(str(data), tmp_path / "out", fit_options(**WORDS_ALONE, pseudo_model=name))
        assert not (tmp_path / "out").exists()
