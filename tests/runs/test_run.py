"""Runs: saved, loaded and compared; their files, manifests and portions."""

import json
import random
from dataclasses import replace
from pathlib import Path

import ir_measures
import pytest
from failing import raises
from fixture_types import Patch
from ir_measures import RR, R, SetF, SetP, SetR
from run_files import write_jsonl_run

from grls.data.corpus import Corpus
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.evaluation.evaluate import Judged
from grls.evaluation.metrics import means, sequence_recall, set_f1
from grls.runs.portions import (
    RunInfo,
    fingerprint_queries,
    in_portions,
    info_file,
    read_info,
    save_retrieved,
    write_info,
)
from grls.runs.results import Retrieved, read_results
from grls.runs.run import Run
from grls.runs.trec import chain_ranking, coverage_of, ids_of, read_run, without_done, write_run

CORPUS = Corpus.from_passages([Passage("a", "alpha", "First"), Passage("b", "beta"), Passage("c", "gamma")])
QUERIES = [Query("q1", "one?"), Query("q2", "two?"), Query("q3", "three?")]
INFO = RunInfo(
    "generator", "mine", "single", CORPUS.fingerprint, fingerprint_queries(QUERIES), "data", "test", "full",
    stages=("retrieve",), seconds=1.5, options={"k": 2},
)  # fmt: skip
RANKINGS = {"q1": [Hit("b", -0.5), Hit("a", -0.75)], "q2": [Hit("c", -2.0)], "q3": []}
CHAINS = {
    "q1": Chain((Hit("a", -0.5), Hit("c", -0.25), Hit("DONE", -0.125)), -0.875, True),
    "q2": Chain((Hit("DONE", -0.5),), -0.5, True), "q3": Chain((), 0.0, False),
}  # fmt: skip


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


def test_what_cannot_be_saved_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="saved with its manifest, and this one has none"):
        Run.of(RANKINGS).save(tmp_path / "r", QUERIES, CORPUS)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="query id 'q3' of the results is not in the queries given"):
        Run.of(RANKINGS, info=INFO).save(tmp_path / "r", QUERIES[:2], CORPUS)
    with pytest.raises(DataError, match="passage id 'z' of the results is not in corpus"):
        Run.of({"q1": [Hit("z", 0.0)]}, info=INFO).save(tmp_path / "r", QUERIES, CORPUS)
    assert list(tmp_path.iterdir()) == []


def test_what_is_saved_in_parts_is_what_a_whole_run_saves(tmp_path: Path, monkeypatch: Patch) -> None:
    info = replace(INFO, steps="dynamic")
    Run.of(chains=CHAINS, info=info).save(tmp_path / "whole", QUERIES, CORPUS)
    monkeypatch.setattr("grls.runs.results._BATCH", 2)
    retrieved = [Retrieved.chained(query, chain) for query, chain in CHAINS.items()]
    save_retrieved(tmp_path / "parts", QUERIES, CORPUS, retrieved, info)
    for ending in (".trec", ".jsonl"):
        assert (tmp_path / f"parts{ending}").read_bytes() == (tmp_path / f"whole{ending}").read_bytes()


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
    raises(MismatchError, message, run.compatible_with, other)


def test_what_is_unknown_differs_from_nothing() -> None:
    run = Run(RANKINGS, info=INFO)
    run.compatible_with(run)
    run.compatible_with(Run({"q9": []}))
    Run({"q9": []}).compatible_with(run)
    run.compatible_with(Run(RANKINGS, info=replace(INFO, corpus="", queries="")))
    run.compatible_with(Run(RANKINGS, info=replace(INFO, queries="", split=None)))
    run.compatible_with(Run(RANKINGS, info=replace(INFO, split="another name of the same queries")))


SPACED = Corpus.from_passages([Passage("a", "alpha", "First"), Passage("b", "beta"), Passage("c d", "gamma")])


def test_a_retriever_with_few_candidates_tells_no_deeper_than_these() -> None:
    rankings = {"q": [Hit(name, -float(n)) for n, name in enumerate("abc")]}
    for options, depth in (
        ({"k": 10, "passages": 3}, 3),
        ({"k": 10}, None),
        ({"k": 3}, 3),
        ({"k": 10, "passages": 20}, None),
        ({"k": 10, "passages": 2, "steps": "ranked", "hops": 2}, 3),  # each hop has two
        ({"k": 10, "members": [{"passages": 2}, {"passages": 3}]}, 3),
        ({"k": 10, "members": [{"passages": 2}, {"passages": 5}]}, None),
        ({"k": 10, "members": [{"passages": 2}, {"retriever": "bm25"}]}, None),
    ):
        info = RunInfo("multi-vector", "m", "single", "", "", "", "test", "full", options=options)
        assert Run.of(rankings, info=info).depth() == depth, options


def test_a_run_is_six_columns_without_done(tmp_path):
    file = tmp_path / "run.trec"
    write_run(file, {"q1": [Hit("b", -0.5), Hit("DONE", -0.75), Hit("a", -1.5)], "q2": []})
    assert file.read_text() == "q1 Q0 b 1 -0.5 grls\nq1 Q0 a 2 -1.5 grls\n"
    assert read_run(file) == {"q1": [Hit("b", -0.5), Hit("a", -1.5)]}


@pytest.mark.parametrize("score", [0.0, -1e-9, -20.0, 12345.678, -1e30, 2.0])
def test_tied_scores_are_written_strictly_falling_in_single_precision(tmp_path, score):
    ids = ["b", "z", "a", "m"]
    file = tmp_path / "run"
    write_run(file, {"q": [Hit(i, score) for i in ids]})
    read = read_run(file)["q"]
    assert [hit.id for hit in read] == ids
    ranked = [ir_measures.ScoredDoc("q", hit.id, hit.score) for hit in read]
    for place, passage_id in enumerate(ids, 1):  # trec_eval sees the same order
        found = ir_measures.calc_aggregate([RR], [ir_measures.Qrel("q", passage_id, 1)], ranked)
        assert found[RR] == pytest.approx(1 / place)


def test_a_lowered_score_lowers_those_it_would_pass(tmp_path):
    hits = [Hit("a", 0.0), Hit("b", 0.0), Hit("c", -1e-7), Hit("d", -1.0)]
    write_run(tmp_path / "run", {"q": hits})
    read = read_run(tmp_path / "run")["q"]
    assert [hit.id for hit in read] == ["a", "b", "c", "d"]
    assert [hit.score for hit in read] == pytest.approx([0, -1e-6, -2e-6, -1.0], abs=1e-9)


@pytest.mark.parametrize(("rankings", "message"), [
    ({"q": [Hit("a b", 0.0)]}, "passage id 'a b' holds white space"),
    ({"q": [Hit("a\u00a0b", 0.0)]}, "holds white space"),
    ({"q 1": [Hit("a", 0.0)]}, "query id 'q 1' holds white space"),
    ({"": [Hit("a", 0.0)]}, "query id '' is empty"),
    ({"q": [Hit("a", 0.0), Hit("a", -1.0)]}, "lists a passage twice"),
    ({"q": [Hit("a", -1.0), Hit("b", 0.0)]}, "rises from -1.0 to 0.0 at passage 'b'"),
    ({"q": [Hit("a", float("-inf"))]}, "finite score, got -inf"),
    ({"q": [Hit("a", float("nan"))]}, "finite score, got nan"),
    ({"q": [Hit("a", 1e300)]}, r"finite score, got 1e\+300"),
])  # fmt: skip
def test_what_a_run_cannot_carry_is_refused_and_nothing_is_left(tmp_path, rankings, message):
    raises(DataError, message, write_run, tmp_path / "run", {"ok": [Hit("a", 1.0)], **rankings})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "bad", ["q Q0 a 1 0.5", "q Q0 a 1 high t", "q Q0 a 1 nan t", "q Q0 a b 1 0.5 t", "q Q0 first 1 0.25 t"]
)
def test_a_malformed_line_names_file_and_line(tmp_path, bad):
    file = tmp_path / "run"
    file.write_text(f"q Q0 first 1 0.5 t\n\n{bad}\n")
    with pytest.raises(DataError, match=r"run, line 3: ") as error:
        read_run(file)
    assert error.value.line == 3


def test_a_missing_run_is_named(tmp_path):
    raises(DataError, r"nowhere\.trec: no such file; expected", read_run, tmp_path / "nowhere.trec")
    (tmp_path / "test.jsonl").touch()
    raises(DataError, r"did you mean \S*test\.jsonl\?", read_run, tmp_path / "test")


def test_a_foreign_run_is_ordered_as_trec_eval_orders_it(tmp_path):
    file = tmp_path / "run"
    file.write_text("q\tQ0\tlow\t1\t1\tt\nq Q0 a 2 2 t\nq Q0 b 3 2.00000001 t\nq Q0 c 4 2 t\n")
    assert [hit.id for hit in read_run(file)["q"]] == ["c", "b", "a", "low"]


def test_a_chain_ranks_by_hop_with_cumulative_scores_that_fall():
    chain = Chain(
        (Hit("b", -1.0), Hit("a", 0.0), Hit("b", -0.5), Hit("c", -2.0), Hit("DONE", -0.1)), -3.6, True
    )
    ranking = chain_ranking(chain)
    assert [hit.id for hit in ranking] == ["b", "a", "c"]
    assert [hit.score for hit in ranking] == pytest.approx([-1.0, -1.000001, -3.5], abs=1e-7)
    assert ranking[1].score < ranking[0].score
    ranking = chain_ranking(Chain((Hit("b", 3.0), Hit("a", 5.0), Hit("c", 1.0)), 9.0, False))
    assert [hit.id for hit in ranking] == ["b", "a", "c"]
    assert ranking[0].score == 3.0 > ranking[1].score > ranking[2].score > 2.9999


def test_results_hold_the_evidence_text_of_every_query(tmp_path):
    file = tmp_path / "results.jsonl"
    chain = Chain((Hit("c d", -1.0), Hit("a", -0.5), Hit("DONE", -0.25)), -1.75, True)
    rankings = {"q2": [Hit("b", -0.5), Hit("DONE", -0.6), Hit("a", -0.7)]}
    write_jsonl_run(file, QUERIES, SPACED, "renormalized", rankings, {"q1": chain})
    first, second, third = [json.loads(line) for line in file.read_text().splitlines()]
    assert first == {
        "query_id": "q1",
        "text": "one?",
        "score_mode": "renormalized",
        "hits": [
            {"rank": 1, "id": "c d", "score": -1.0, "title": "", "text": "gamma"},
            {"rank": 2, "id": "a", "score": -1.5, "title": "First", "text": "alpha"},
        ],
        "chain": {
            "done": True,
            "score": -1.75,
            "hops": [
                {"id": "c d", "score": -1.0},
                {"id": "a", "score": -0.5},
                {"id": "DONE", "score": -0.25},
            ],
        },
    }
    assert [(hit["rank"], hit["id"]) for hit in second["hits"]] == [(1, "b"), (2, "a")]
    assert "chain" not in second
    assert third["hits"] == []
    assert Run.load(file) == Run(
        {"q1": [Hit("c d", -1.0), Hit("a", -1.5)], "q2": [Hit("b", -0.5), Hit("a", -0.7)], "q3": []},
        {"q1": chain}, "renormalized",
    )  # fmt: skip


GOOD = {"query_id": "q", "text": "?", "score_mode": "full", "hits": []}


@pytest.mark.parametrize(("bad", "message"), [
    ({**GOOD, "hits": None}, "list 'hits'"),
    ({**GOOD, "hits": [{"id": "a", "score": "1"}]}, "'score' to be a number, got '1'"),
    ({**GOOD, "hits": [{"id": "a", "score": 10**400}]}, "expected a result line"),
    ({**GOOD, "query_id": "first"}, "used twice"),
    ({**GOOD, "score_mode": "renormalized"}, "one file holds one mode"),
    ({**GOOD, "chain": {"hops": [], "score": 0}}, "'done' to be true or false"),
])  # fmt: skip
def test_a_malformed_result_names_file_and_line(tmp_path, bad, message):
    file = tmp_path / "results.jsonl"
    file.write_text("\n".join(json.dumps(record) for record in ({**GOOD, "query_id": "first"}, bad)))
    with pytest.raises(DataError, match=rf"results\.jsonl, line 2: .*{message}"):
        list(read_results(file))


def test_an_unanswered_query_gets_an_empty_list_and_is_said(caplog):
    qrels = {"q2": {"a": 1}, "q1": {"b": 1}, "q4": {"a": 1}}
    rankings = {"q1": [Hit("b", 0.0)], "q3": [Hit("a", 0.0)], "q4": [Hit("DONE", 0.0)]}
    judged = Judged(
        Run.of(rankings),
        [Query(name, name) for name in qrels],
        qrels,
        Corpus.from_passages([Passage("b", "b")]),
    )
    assert [*judged.ids.items()] == [("q2", []), ("q1", ["b"]), ("q4", [])]
    assert coverage_of(rankings, qrels, "bm25.trec") == (3, 2, 1)
    assert "bm25.trec: 2 of 3 judged queries have no hit; they score 0" in caplog.text
    assert "bm25.trec: 1 query is not judged" in caplog.text
    raises(DataError, "judge no query", coverage_of, {"q3": []}, {})


@pytest.mark.parametrize("seed", range(5))
def test_metrics_agree_with_ir_measures_on_random_runs(tmp_path, seed):
    random_ = random.Random(seed)
    ids = [f"p{n}" for n in range(30)]
    qrels = {f"q{n}": {p: random_.randint(0, 2) for p in random_.sample(ids, 6)} for n in range(25)}
    rankings = {}
    for n in range(3, 28):  # q0-q2 are unanswered, q25-q27 are not judged
        scores = sorted((random_.choice([0.0, -0.5, -random_.random()]) for _ in range(12)), reverse=True)
        hits = [Hit(*pair) for pair in zip(random_.sample(ids, 12), scores, strict=True)]
        rankings[f"q{n}"] = [*hits[:4], Hit("DONE", hits[4].score), *hits[4:]]
    write_run(tmp_path / "run", rankings)
    theirs = ir_measures.calc_aggregate(
        [R @ 1, R @ 5, R @ 10, R @ 20, SetP, SetR, SetF],
        [ir_measures.Qrel(q, p, grade) for q, grades in qrels.items() for p, grade in grades.items()],
        ir_measures.read_trec_run(str(tmp_path / "run")),
    )
    read = read_run(tmp_path / "run")
    retrieved = [ids_of(read.get(q, [])) for q in qrels]
    assert retrieved == [[hit.id for hit in without_done(rankings.get(q, []))] for q in qrels]
    gold = [{p for p, grade in grades.items() if grade > 0} for grades in qrels.values()]
    recall, sets = means(sequence_recall, retrieved, gold), means(set_f1, retrieved, gold)
    assert recall == pytest.approx({f"recall@{k}": theirs[R @ k] for k in (1, 5, 10, 20)})
    assert sets == pytest.approx({"precision": theirs[SetP], "recall": theirs[SetR], "f1": theirs[SetF]})


MANIFEST = RunInfo(
    system="generator", name="ours", steps="single", corpus="c" * 64, queries="q" * 64, data="data/x",
    split="test", score_mode="full", stages=("memorise", "retrieve"), members=("one", "two"), seconds=1.5,
    options={"k": 3},
)  # fmt: skip


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run.trec").write_text("q Q0 a 1 0.5 t\n")
    (tmp_path / "run.jsonl").write_text("{}\n")
    write_info(tmp_path / "run", MANIFEST)
    return tmp_path / "run"


def edit(run, **changes):
    file = info_file(run)
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_manifest_comes_back_for_either_file_and_for_the_name(run):
    infos = [read_info(f"{run}{ending}") for ending in ("", ".trec", ".jsonl")]
    assert infos[0] == infos[1] == infos[2]
    assert {**vars(infos[0]), "files": {}} == vars(MANIFEST)
    assert set(infos[0].files) == {".trec", ".jsonl"}


def test_the_manifest_stands_beside_the_run_or_there_is_none(tmp_path):
    assert read_info(tmp_path / "foreign.trec") is None
    names = ("runs/a.trec", "runs/a.jsonl", "runs/a")
    assert {str(info_file(name)) for name in names} == {"runs/a.info.json"}
    assert str(info_file("runs/a-0.5")) == "runs/a-0.5.info.json"


@pytest.mark.parametrize("ending", [".trec", ".jsonl"])
def test_a_manifest_of_other_files_is_refused(run, ending):
    run.with_suffix(ending).write_text("other\n")
    raises(DataError, rf"run\.info\.json: .*run\{ending} has changed since", read_info, f"{run}{ending}")
    assert read_info(f"{run}{'.jsonl' if ending == '.trec' else '.trec'}") is not None


def test_a_file_that_was_not_written_with_it_is_unknown_to_the_manifest(run):
    write_info(run, MANIFEST, endings=[".trec"])
    assert read_info(f"{run}.trec") is not None
    raises(DataError, "has changed since", read_info, f"{run}.jsonl")


@pytest.mark.parametrize("changes", [
    {"format": 2}, {"steps": "double"}, {"corpus": None}, {"stages": [1]}, {"seconds": True}, {"unknown": 1},
])  # fmt: skip
def test_a_malformed_manifest_is_refused_with_its_name(run, changes):
    edit(run, **changes)
    raises(DataError, r"run\.info\.json: expected the manifest of a run", read_info, run)


def test_the_fingerprint_of_queries_heeds_ids_and_texts_and_no_order():
    one, two = Query("a", "x"), Query("b", "y")
    assert fingerprint_queries([one, two]) == fingerprint_queries([two, one])
    assert fingerprint_queries([one, two._replace(evidence=("p",))]) == fingerprint_queries([one, two])
    others = ([one], [one, Query("b", "z")], [one, Query("c", "y")], [Query("a", "y"), Query("b", "x")])
    assert fingerprint_queries([one, two]) not in {fingerprint_queries(other) for other in others}


FIVE = [Query(f"q{n}", f"{n}?") for n in range(5)]
CHAIN = Chain((Hit("a", -0.5), Hit("b", -0.25), Hit("DONE", -0.125)), -0.875, True)
KINDS = {
    "rankings": [Retrieved.ranked(query.id, [Hit("a", 2.0), Hit("b", 1.0)]) for query in FIVE],
    "chains": [Retrieved.chained(query.id, CHAIN) for query in FIVE],
    "sets": [Retrieved.chained(query.id, CHAIN, [Hit("a", 9.0), Hit("b", 8.0)]) for query in FIVE],
    "nothing": [Retrieved.ranked(query.id, []) for query in FIVE],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 5])
def test_results_come_back_in_portions_and_at_once(
    tmp_path: Path, monkeypatch: Patch, kind: str, size: int
) -> None:
    expected, asked = KINDS[kind], []

    def retrieve(some: slice) -> list[Retrieved]:
        asked.append((some.start, some.stop))
        return expected[some]

    monkeypatch.setattr("grls.runs.portions.PORTION", size)
    file = tmp_path / "r.retrieved.jsonl"
    with in_portions(f"{tmp_path}/r", dict, FIVE, retrieve) as portions:
        assert list(portions.retrieved) == list(portions.retrieved) == expected
        assert file.exists() == (size == 2)
    assert asked == ([(0, 5)] if size == 5 else [(0, 2), (2, 4), (4, 5)])
    assert not file.exists()
