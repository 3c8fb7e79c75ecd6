"""A run as one value: saved and loaded, alone and in parts, and refused where it does not fit another."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from run_files import write_jsonl_run

from grls.data.corpus import Corpus
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.runs.manifest import RunInfo, fingerprint_queries
from grls.runs.results import Retrieved
from grls.runs.run import Run
from grls.runs.save import save_retrieved

CORPUS = Corpus.from_passages([Passage("a", "alpha", "First"), Passage("b", "beta"), Passage("c", "gamma")])
QUERIES = [Query("q1", "one?"), Query("q2", "two?"), Query("q3", "three?")]
INFO = RunInfo(
    "generator", "mine", "single", CORPUS.fingerprint, fingerprint_queries(QUERIES), "data", "test", "full",
    stages=("retrieve",), seconds=1.5, options={"k": 2},
)  # fmt: skip
RANKINGS = {"q1": [Hit("b", -0.5), Hit("a", -0.75)], "q2": [Hit("c", -2.0)], "q3": []}
CHAINS = {
    "q1": Chain((Hit("a", -0.5), Hit("c", -0.25), Hit("DONE", -0.125)), -0.875, True),
    "q2": Chain((Hit("DONE", -0.5),), -0.5, True),
    "q3": Chain((), 0.0, False),
}


def test_rankings_come_back(tmp_path: Path) -> None:
    run = Run.of(RANKINGS, info=INFO)
    line = run.save(tmp_path / "r", QUERIES, CORPUS)
    assert line == f"{tmp_path}/r.trec, {tmp_path}/r.jsonl: 3 queries, score mode full, 1.5 s"
    loaded = Run.load(tmp_path / "r.jsonl")
    assert (loaded.rankings, loaded.chains, loaded.score_mode) == (RANKINGS, {}, "full")
    assert loaded.info is not None
    assert replace(loaded.info, files={}) == INFO
    assert (loaded.name, loaded.steps, loaded.path) == ("mine", "single", f"{tmp_path}/r.jsonl")
    trec = Run.load(tmp_path / "r.trec")
    assert trec.rankings == {query: hits for query, hits in RANKINGS.items() if hits}
    assert (trec.score_mode, trec.info) == ("", loaded.info)


def test_chains_come_back_with_their_rankings(tmp_path: Path) -> None:
    run = Run.of(chains=CHAINS, info=replace(INFO, steps="dynamic"))
    assert run.rankings == {"q1": [Hit("a", -0.5), Hit("c", -0.75)], "q2": [], "q3": []}
    run.save(tmp_path / "r", QUERIES, CORPUS)
    loaded = Run.load(tmp_path / "r.jsonl")
    assert (loaded.rankings, loaded.chains) == (run.rankings, CHAINS)
    again = Run.load(tmp_path / "r.jsonl")
    again.save(tmp_path / "again", QUERIES, CORPUS)
    for ending in (".trec", ".jsonl"):
        assert (tmp_path / f"again{ending}").read_bytes() == (tmp_path / f"r{ending}").read_bytes()


def test_a_fixed_number_of_hops_is_saved_as_a_ranking(tmp_path: Path) -> None:
    Run.of(chains=CHAINS, info=replace(INFO, steps="fixed")).save(tmp_path / "r", QUERIES, CORPUS)
    assert Run.load(tmp_path / "r.jsonl").chains == {}
    assert "chain" not in json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])


def test_a_set_keeps_a_ranking_of_its_own(tmp_path: Path) -> None:
    hits = [Hit("a", 3.0), Hit("c", 2.0)]
    chains = {"q1": Chain(tuple(hits), 0.5, True)}
    Run.of({"q1": hits}, chains, replace(INFO, steps="dynamic")).save(tmp_path / "r", QUERIES, CORPUS)
    assert Run.load(tmp_path / "r.jsonl").rankings == {"q1": hits, "q2": [], "q3": []}
    assert Run.load(tmp_path / "r.jsonl").chains == chains


def test_without_texts_there_is_a_trec_run_alone(tmp_path: Path) -> None:
    line = Run.of(RANKINGS, info=INFO).save(tmp_path / "r")
    assert line == f"{tmp_path}/r.trec: 3 queries, score mode full, no texts"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.info.json", "r.trec"]
    assert [*Run.load(tmp_path / "r.trec").rankings] == ["q1", "q2"]


def test_a_run_without_a_manifest_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="saved with its manifest, and this one has none"):
        Run.of(RANKINGS).save(tmp_path / "r", QUERIES, CORPUS)
    assert list(tmp_path.iterdir()) == []


def test_results_of_another_query_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="query id 'q3' of the results is not in the queries given"):
        Run.of(RANKINGS, info=INFO).save(tmp_path / "r", QUERIES[:2], CORPUS)
    with pytest.raises(DataError, match="passage id 'z' of the results is not in corpus"):
        Run.of({"q1": [Hit("z", 0.0)]}, info=INFO).save(tmp_path / "r", QUERIES, CORPUS)
    assert list(tmp_path.iterdir()) == []


def test_what_is_saved_in_parts_is_what_a_whole_run_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = replace(INFO, steps="dynamic")
    Run.of(chains=CHAINS, info=info).save(tmp_path / "whole", QUERIES, CORPUS)
    monkeypatch.setattr("grls.runs.results._AT_ONCE", 2)
    retrieved = [Retrieved.chained(query, chain) for query, chain in CHAINS.items()]
    save_retrieved(tmp_path / "parts", QUERIES, CORPUS, retrieved, info)
    for ending in (".trec", ".jsonl"):
        assert (tmp_path / f"parts{ending}").read_bytes() == (tmp_path / f"whole{ending}").read_bytes()


OLD_LINE = {
    "query_id": "q1",
    "text": "one?",
    "score_mode": "renormalized",
    "hits": [{"rank": 1, "id": "a", "score": -0.5, "title": "First", "text": "alpha"}],
    "chain": {
        "done": True,
        "score": -0.75,
        "hops": [{"id": "a", "score": -0.5}, {"id": "DONE", "score": -0.25}],
    },
}
OLD_MANIFEST = {
    "format": 1, "system": "bm25", "name": "bm25, single", "steps": "single", "corpus": "c", "queries": "q",
    "data": "data/x", "split": None, "score_mode": "bm25", "stages": [], "members": [], "seconds": 2.0,
    "options": {"k": 10},
    "files": {".trec": "24ee27f366f07df88dd3a49b1b930a15a171b28b014cba57e042f4df45b44828"},
}  # fmt: skip


def test_files_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    """Byte by byte as they were before there was a :class:`Run`."""
    (tmp_path / "old.jsonl").write_text(json.dumps(OLD_LINE) + "\n")
    (tmp_path / "old.trec").write_text("q1 Q0 a 1 -0.5 grls\n")
    run = Run.load(tmp_path / "old.jsonl")
    assert run.rankings == {"q1": [Hit("a", -0.5)]}
    assert run.chains == {"q1": Chain((Hit("a", -0.5), Hit("DONE", -0.25)), -0.75, True)}
    assert (run.score_mode, run.info, run.name, run.steps) == ("renormalized", None, "old", "dynamic")
    (tmp_path / "old.info.json").write_text(json.dumps(OLD_MANIFEST))
    trec = Run.load(tmp_path / "old.trec")
    assert trec.info is not None
    assert (trec.rankings, trec.name, trec.info.options) == (run.rankings, "bm25, single", {"k": 10})
    with pytest.raises(DataError, match="has changed since this manifest was written"):
        Run.load(tmp_path / "old.jsonl")  # another run's


DIFFERENT = {
    "corpus": (
        {"corpus": "another"},
        r"^a\.trec is a run over the corpus of data, b\.trec over another one, of data",
    ),
    "queries": (
        {"queries": "others", "split": "dev"},
        r"^a\.trec \(data, split test\) and b\.trec \(data, split dev\) answer different queries: "
        r"2 are in a\.trec alone \('q1', 'q2'\), 1 are in b\.trec alone \('q9'\)",
    ),
    "split": (
        {"queries": "", "split": "dev"},
        r"^a\.trec \(data, split test\) and b\.trec \(data, split dev\) answer different splits",
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_run_that_is_not_comparable_is_refused_with_the_difference(what: str) -> None:
    changes, message = DIFFERENT[what]
    run = Run({"q1": [], "q2": []}, info=INFO, path="a.trec")
    other = Run({"q9": []}, info=replace(INFO, **changes), path="b.trec")
    with pytest.raises(MismatchError, match=message):
        run.compatible_with(other)


def test_other_texts_of_the_same_ids_are_named() -> None:
    run = Run({"q1": []}, info=INFO, path="a.trec")
    with pytest.raises(MismatchError, match="the ids are the same, the texts differ"):
        run.compatible_with(replace(run, info=replace(INFO, queries="others"), path="b.trec"))


def test_what_is_unknown_differs_from_nothing() -> None:
    run = Run(RANKINGS, info=INFO)
    run.compatible_with(run)
    run.compatible_with(Run({"q9": []}))
    Run({"q9": []}).compatible_with(run)
    run.compatible_with(Run(RANKINGS, info=replace(INFO, corpus="", queries="")))
    run.compatible_with(Run(RANKINGS, info=replace(INFO, queries="", split=None)))
    run.compatible_with(Run(RANKINGS, info=replace(INFO, split="another name of the same queries")))


def test_a_file_alone_is_named_by_its_name(tmp_path: Path) -> None:
    write_jsonl_run(tmp_path / "other.jsonl", QUERIES, CORPUS, "x", RANKINGS)
    run = Run.load(tmp_path / "other.jsonl")
    assert (run.name, run.steps, run.info, run.rankings) == ("other", "single", None, RANKINGS)
