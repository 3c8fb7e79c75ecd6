"""``grls experiment``: one table of folders and runs, quoted rows, growth."""

import json
import re
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
from failing import fails, raises
from fixture_types import Capsys
from report_helpers import GOOD, POOR, dataset, write
from small_data import write_small

import grls
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_split, write_dataset
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.evaluation.evaluate import evaluate_run
from grls.evaluation.significance import compare
from grls.report.blocks import Cell, Table
from grls.report.growth import grow, measure_by_query
from grls.report.systems import read_quoted
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.registry import Opening
from grls.runs.run import Run
from grls.tune.step import DevQueries

QUOTED = Path(__file__).parents[2] / "benchmarks" / "quoted"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small data set, a folder of BM25 and one that has it as a member."""
    place = tmp_path_factory.mktemp("experiment")
    write_small(place / "data")
    assert main(["index", "bm25", f"--corpus={place / 'data'}", f"--output={place / 'words'}"]) == 0
    hops = ["--hops.steps=ranked", "--hops.max=2", f"--output={place / 'hops'}"]
    assert main(["index", "hops", str(place / "words"), *hops]) == 0
    return place


def experiment(place: Path, *arguments: str, output: str = "out") -> dict[str, dict[str, float]]:
    """Run the command over the train split; returns system -> measure -> mean."""
    given = [f"--data={place / 'data'}", "--split=train", f"--output={place / output}", *arguments]
    assert main(["experiment", *given]) == 0
    (table,) = json.loads((place / f"{output}.json").read_text())["tables"]
    return {name: scores["means"] for name, scores in table["systems"].items()}


def test_folders_and_bm25_stand_in_one_table_with_what_they_cost(place: Path, capsys: Capsys) -> None:
    systems = ["bm25", str(place / "words"), f"two hops={place / 'hops'}"]
    means = experiment(place, *systems, "--baseline=bm25")
    assert list(means) == ["bm25", "words", "two hops"]
    assert means["bm25"] == means["words"]
    searchers = {"words": grls.load(place / "words"), "two hops": grls.load(place / "hops")}
    table = grls.experiment(searchers, place / "data", "train", "R@5 R@2 complete@5 nDCG@10", "words")
    assert {name: table[name].means for name in searchers} == {name: means[name] for name in searchers}
    printed = capsys.readouterr().out
    heads = r"system +R@5 +diff\. +p +R@2 .* complete@5 .* seconds a query  tokens a query  seconds to index"
    assert re.search(heads, printed)
    assert "difference to bm25, and its p by Holm's correction" in printed
    lines = (place / "out.csv").read_text().splitlines()
    assert lines[0].startswith("system,R@5,R@5 difference,R@5 p,R@2,")
    row = dict(zip(lines[0].split(","), lines[3].split(","), strict=True))
    assert (row["system"], row["tokens"]) == ("two hops", "0.0")
    assert float(row["R@5"]) == means["two hops"]["R@5"]
    assert 0 < float(row["index_seconds"]) < 60  # of the member, as `grls index` has left it
    tex = (place / "out.tex").read_text()
    assert r"\begin{tabular}{lrrrr}" in tex  # the measures alone, as wide as a page
    assert r"\textbf{" in tex
    assert (place / "out.md").read_text().splitlines()[2].startswith("| system | R@5 | diff. | p |")
    experiment(place, *systems)
    assert capsys.readouterr().out.count(" is kept\n") == 3
    assert experiment(place, *systems, "--limit=3") != means


def test_several_seeds_are_one_system_with_a_spread(tmp_path: Path) -> None:
    data = dataset(tmp_path / "small")
    for name, found in (("a", GOOD), ("b", POOR), ("c", POOR)):
        write(tmp_path / name, data, found, "one name", "bm25", "single")
    runs = [f"both={tmp_path / 'a'}.jsonl,{tmp_path / 'b'}.jsonl", f"{tmp_path / 'c'}.jsonl"]
    output = tmp_path / "out"
    assert main(["experiment", *runs, "--measures=R@2", f"--output={output}", "--baseline=one name"]) == 0
    systems = json.loads(output.with_suffix(".json").read_text())["tables"][0]["systems"]
    # R@2: GOOD finds 2/3 and 1, POOR 2/3 and 1/2
    assert systems["both"]["means"]["R@2"] == pytest.approx((2 / 3 + 0.75) / 2)
    assert systems["both"]["spread"]["R@2"] == pytest.approx(0.25 / 2**0.5)
    expected = compare([2 / 3, 0.75], [2 / 3, 0.5])._asdict()
    assert systems["both"]["differences"]["R@2"] == pytest.approx({**expected, "p_holm": expected["p"]})
    assert "± 17.7" in output.with_suffix(".md").read_text()


def test_a_path_is_one_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dataset(tmp_path / "small")
    sweep = tmp_path / "lr=1,b=2"
    sweep.mkdir()
    write(tmp_path / "run", data, GOOD, "one", "bm25", "single")
    write(sweep / "run", data, POOR, "two", "bm25", "single")
    monkeypatch.chdir(tmp_path)
    forms = ["./run.jsonl", "./run.trec", f"{tmp_path}//run.jsonl", "lr=1,b=2/.././run.jsonl"]
    runs = [[form] for form in forms] + [["x=./run.jsonl,.//lr=1,b=2/run.trec"], ["./lr=1,b=2/run.jsonl"]]
    for number, words in enumerate(runs):
        output = f"./out{number}" + ".json" * (number == 1)
        assert main(["experiment", *words, "--measures=R@2", f"--output={output}"]) == 0
        (table,) = json.loads((tmp_path / f"out{number}.json").read_text())["tables"]
        ((name, scores),) = table["systems"].items()
        expected = {"one": (2 / 3 + 1) / 2, "x": (2 / 3 + 0.75) / 2, "two": (2 / 3 + 1 / 2) / 2}
        assert scores["means"]["R@2"] == pytest.approx(expected[name])
    for command in (["retrieve", "bm25"], ["fuse", "run.trec", "lr=1,b=2/run.trec"]):
        assert main([*command, f"--data={data}", "--output=made.trec"]) == 0
        assert {file.name for file in tmp_path.glob("made*")} == {"made.trec", "made.jsonl", "made.info.json"}


@pytest.mark.parametrize(
    "hops", ["fixed", "fixed --hops.pool=true", "dynamic", "dynamic --hops.choose=expected-f1", "ranked"]
)
def test_every_table_reads_what_a_run_of_hops_holds(kinds: Path, tmp_path: Path, hops: str) -> None:
    data, folder, file = kinds / "data", tmp_path / "hops", tmp_path / "out-runs" / "x.jsonl"
    made = ["index", "hops", str(kinds / "generative"), *f"--hops.steps={hops}".split(), "--hops.max=2"]
    assert main([*made, "--hops.chains=4", f"--output={folder}"]) == 0
    out = tmp_path / "out"
    assert main(["experiment", f"x={folder}", f"--data={data}", f"--output={out}"]) == 0
    means = json.loads(out.with_suffix(".json").read_text())["tables"][0]["systems"]["x"]["means"]
    searcher, measures = grls.load(folder), "R@5 R@2 complete@5 nDCG@10"
    assert grls.experiment({"x": searcher}, data, "test", measures)["x"].means == means
    queries, qrels = read_split(data, "test")
    values = measure_by_query(searcher.retriever, queries, qrels, "R@5", 10, set())
    assert fmean(values.values()) == means["R@5"]
    assert evaluate_run(file, data)["sequence_recall"]["recall@5"] == means["R@5"]
    runs = [[hit.id for hit in hits] for hits in Run.load(file).rankings.values()]
    assert runs == [[hit.id for hit in hits] for hits in searcher.search(queries, 10)]


def test_a_query_that_is_a_passage_does_not_find_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"a1": "Night trains save carbon", "a2": "night trains lose  carbon and money"}
    texts |= {"b1": "libraries open", "b2": "libraries open late"}
    other = {"a1": "a2", "a2": "a1", "b1": "b2", "b2": "b1"}
    passages = [Passage(name, text) for name, text in texts.items()]
    queries = [Query(name, text.lower().removesuffix(" money")) for name, text in texts.items()]
    qrels = {name: {gold: 1} for name, gold in other.items()}
    write_dataset(data := tmp_path / "data", passages, queries, {"test": qrels})
    assert main(["check", str(data)]) == 0
    said = "4 queries are passages of .*, by id and text: a query does not find itself"
    assert re.search(said, caplog.text)
    run = ["retrieve", "bm25", f"--data={data}", f"--output={tmp_path / 'run'}"]
    for hops in (["--hops.steps=fixed", "--hops.max=2"], ["--hops.steps=ranked"], ["--k=1"]):
        assert main([*run, *hops]) == 0
        found = Run.load(tmp_path / "run.jsonl")
        assert {query: hits[0].id for query, hits in found.rankings.items()} == other
    some = [query if query.id == "a1" else Query(f"x-{query.id}", query.text) for query in queries]
    judged = {query.id: qrels[query.id.removeprefix("x-")] for query in some}
    write_dataset(tmp_path / "some", passages, some, {"test": judged})
    pool = ["--hops.steps=fixed", "--hops.max=2", "--hops.chains=4", "--hops.pool=true", "--k=1"]
    assert main([*run, *pool, f"--data={tmp_path / 'some'}"]) == 0
    assert {len(hits) for hits in Run.load(tmp_path / "run.jsonl").rankings.values()} == {1}
    foreign = tmp_path / "foreign.trec"  # of another tool, whose queries find themselves
    lines = [f"{q} Q0 {hit} 1 {score} t" for q, gold in other.items() for hit, score in ((q, 2), (gold, 1))]
    foreign.write_text("\n".join(lines))
    assert evaluate_run(foreign, data, measures=["RR"])["measures"] == {"RR": 1.0}
    output = f"--output={tmp_path / 'out'}"
    assert main(["experiment", "bm25", str(foreign), f"--data={data}", "--measures=RR@1", output]) == 0
    (table,) = json.loads((tmp_path / "out.json").read_text())["tables"]
    assert [scores["means"]["RR@1"] for scores in table["systems"].values()] == [1.0, 1.0]

    fixed = SimpleNamespace(search=lambda asked, k: [[q, other[q]][:k] for q in texts][: len(asked)])
    ours = grls.experiment({"bm25": grls.BM25(data), "fixed": fixed}, data, "test", "RR@1")
    assert [row.means for row in ours.rows] == [{"RR@1": 1.0}, {"RR@1": 1.0}]
    dev = DevQueries.read(str(data), "test")
    assert dev.quality([[query.id, other[query.id]] for query in queries], 1).recall == 1.0
    # Ids that are alike by chance, and gold passages, are found.
    write_dataset(data, passages, [Query(q, "trains carbon") for q in other], {"test": qrels})
    assert main(run) == 0
    assert any(query == hits[0].id for query, hits in Run.load(tmp_path / "run.jsonl").rankings.items())
    write_dataset(data, passages, queries, {"test": {q: {q: 1} for q in other}})
    assert grls.experiment({"bm25": grls.BM25(data)}, data, "test", "RR")["bm25"].means == {"RR": 1.0}


def test_quoted_rows_are_marked_and_have_their_source(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = place / "quoted.json"
    row = {"system": "Theirs", "points": {"R@5": 63.8}, "source": "a paper, table 3", "setting": "their set"}
    content = {"set": "small", "queries": 12, "passages": 6119, "rows": [row]}
    file.write_text(json.dumps(content))
    assert experiment(place, "bm25", f"--quoted={file}")["Theirs (quoted)"] == {"R@5": 0.638}
    text = (place / "out.md").read_text()
    assert re.search(r"\| Theirs \(quoted\) \| 63\.8 \| – .* \| a paper, table 3; their set \|", text)
    assert re.search(r"\| bm25 \| .* \| measured here \|", text)
    assert "over 6,119 passages, and this data set has 10: rows are not comparable" in caplog.text
    assert "queries, and" not in caplog.text
    for wrong, problem in (
        ({**content, "row": []}, "the file.row is no option; known are passages, queries, rows, set"),
        ({"set": "small"}, "the file: .*'rows'"),
        ({**content, "rows": [{**row, "sorce": "x"}]}, "row 1.sorce is no option; known are points"),
        ({**content, "rows": [{**row, "source": 3}]}, "row 1: source must be a text, got 3"),
        ({**content, "rows": [row, row]}, "row 2: the system 'Theirs' is there already"),
        ({**content, "rows": [{**row, "points": {"R@5": 0.5, "P@5": 638}}]}, "row 1: .*638"),
        ({**content, "rows": [{**row, "points": {"nDGC@10": 5}}]}, "row 1: .*did you mean 'nDCG@10'"),
        ([], "the file: expected an object"),
    ):
        file.write_text(json.dumps(wrong))
        raises(DataError, rf"quoted\.json: {problem}", read_quoted, file)


def test_shipped_figures_can_be_read_and_each_has_a_source() -> None:
    files = sorted(QUOTED.glob("*.json"))
    uncounted = {"entailmentbank", "explagraphs", "strategyqa"}  # their papers' splits and corpora differ
    assert {file.stem for file in files} == {
        "hotpotqa1000",
        "hotpotqa_dev",
        "musique",
        "twowiki1000",
    } | uncounted
    for file in files:
        quoted = read_quoted(file)
        assert quoted.counts.keys() == (set() if file.stem in uncounted else {"queries", "passages"})
        assert all(row.source for row in quoted.rows)
    points = {row.name: row.means for row in read_quoted(QUOTED / "twowiki1000.json").rows}
    assert points["HippoRAG 2 (quoted)"] == {"R@5": 0.904}


def test_bad_input_is_one_line_with_the_remedy(
    place: Path, tmp_path: Path, capsys: Capsys, caplog: pytest.LogCaptureFixture
) -> None:
    data, words = str(place / "data"), str(place / "words")
    told = ("experiment", words, "--data", data, "--split=train", f"--output={tmp_path / 'out'}")
    for options, problem in (
        (["--measures=nDGC@10"], "'nDGC@10' is no measure; did you mean 'nDCG@10'?"),
        (["--measures=complet@5"], "did you mean 'complete@5'?"),
        (["--measures="], "--measures names no measure"),
        (["--baseline=word"], "--baseline 'word' is none of the systems; did you mean 'words'?"),
        (["--growth=1"], "--growth must be at least 2"),
        (["--quoted=none.json"], "none.json: no such file"),
    ):
        assert problem in fails(capsys, *told, *options)
    assert "give --data FOLDER" in fails(capsys, "experiment", words, f"--output={tmp_path / 'out'}")
    two = fails(capsys, "experiment", f"x={words}", "x=bm25", *told[2:])
    assert "two systems are called 'x'" in two
    (again := tmp_path / "again").symlink_to(words)
    same = fails(capsys, "experiment", words, "bm25", f"again={again}", *told[2:])
    assert f"{words} and again={again} are the same system: leave one of them out." in same
    assert main(["retrieve", "bm25", "--data", data, "--split=dev", f"--output={tmp_path / 'dev'}"]) == 0
    run = tmp_path / "dev.trec"
    run.with_suffix(".info.json").unlink()
    lone = ("experiment", str(run), "--data", data, "--split=train", f"--output={tmp_path / 'out'}")
    assert "dev.trec: the run answers no query of the split 'train'" in fails(capsys, *lone)
    assert "dev.trec is a run: give its retriever folder" in fails(capsys, *lone, "--growth=2")
    spam, found = write_small(tmp_path / "spam"), []
    first = read_split(spam, "test")[0][0].id
    for passage, grade in (("otter-calm", 0), ("otter-quick", -2)):
        with (spam / "qrels" / "test.tsv").open("a") as stream:
            stream.write(f"{first}\t{passage}\t{grade}\n")
        assert main(["experiment", "bm25", f"--data={spam}", f"--output={tmp_path / 'a'}"]) == 0
        found.append(json.loads((tmp_path / "a.json").read_text())["tables"][0]["systems"]["bm25"]["means"])
    assert found[0] == found[1]
    said = f"{spam / 'qrels' / 'test.tsv'}: 1 grade is below zero; such passages are not relevant"
    assert said in caplog.text
    caplog.clear()
    assert main(["evaluate", str(tmp_path / "a-runs" / "bm25.jsonl"), f"--data={spam}"]) == 0
    assert said in caplog.text


def test_a_corpus_that_arrives_in_parts(place: Path) -> None:
    means = experiment(place, str(place / "hops"), "--growth=2", "--measures=R@2", output="grown")
    table = json.loads((place / "grown.json").read_text())["growth"]
    rows = {(row[0], row[1]): dict(zip(table["heads"], row, strict=True)) for row in table["rows"]}
    steps = ["1 of 2", "2 of 2", "the last part removed"]
    assert list(rows) == [(name, step) for name in ("hops", "hops: words") for step in steps]
    queries, _ = read_split(place / "data", "train")
    for name in ("hops", "hops: words"):
        first, second, last = (rows[name, step] for step in steps)
        assert [row["passages"] for row in (first, second, last)] == ["5", "10", "5"]
        assert first["queries, old"] == "0"
        assert int(second["queries, old"]) == int(first["queries, new"])
        assert int(second["queries, old"]) + int(second["queries, new"]) == len(queries)
        old, new = (float(second[f"R@2, {kind}"]) for kind in ("old", "new"))
        lost = float(first["R@2, new"]) - old
        assert float(second["forgetting"]) == pytest.approx(lost, abs=0.11)
        assert (last["hits of removed"], last["R@2, old"]) == ("0", first["R@2, new"])
        assert float(second["seconds of update"]) >= 0
        if name == "hops":  # the whole corpus is there again
            count = int(second["queries, old"])
            mean = (old * count + new * (len(queries) - count)) / len(queries)
            assert mean == pytest.approx(100 * means["hops"]["R@2"], abs=0.1)
    assert (place / "grown-growth.csv").read_text().startswith("retriever,step,passages,")


def test_what_a_part_pushes_from_the_first_place_is_forgotten(tmp_path: Path) -> None:
    """The second part has a passage that is nearer to the words of the first query than its gold passage."""
    texts = {"old": "otters sleep by day", "other": "herons wade", "near": "otters sleep", "new": "moles dig"}
    corpus = Corpus.from_passages([Passage(name, text) for name, text in texts.items()], "the test")
    BM25Retriever(corpus).save_pretrained(tmp_path / "words")
    queries, qrels = [Query("1", "otters sleep"), Query("2", "moles dig")], {"1": {"old": 1}, "2": {"new": 1}}
    (tmp_path / "steps").mkdir()
    rows = grow(tmp_path / "words", corpus, queries, qrels, 2, "R@1", 4, tmp_path / "steps", Opening("cpu"))
    shown = [[cell.text for cell in row] for row in rows]
    # step, passages, old queries, their R@1, forgetting, new queries, their R@1
    assert shown[0][2:7] == ["0", "–", "–", "1", "100.0"]
    assert shown[1][2:7] == ["1", "0.0", "100.0", "1", "100.0"]


def test_what_a_generator_lost_is_not_counted(kinds: Path, tmp_path: Path) -> None:
    """Its passages keep their numbers, so its corpus still has those that were removed."""
    split = read_split(kinds / "data", "test")
    rows = grow(
        kinds / "generative", Corpus.read(kinds / "data"), *split, 2, "R@1", 2, tmp_path, Opening("cpu")
    )
    assert [row[1].text for row in rows] == ["5", "10", "5"]


def test_a_table_escapes_what_its_form_reads() -> None:
    rows = ((Cell("a_b & c|d"), Cell("±1 < 2", strong=True)),)
    table = Table("t u", "50% of {x}", ("name", "p_1"), 1, rows, "a note")
    assert table.latex().splitlines()[2:] == [
        r"\caption{50\% of \{x\}. a note}", r"\label{tab:t-u}", r"\begin{tabular}{lr}", r"\toprule",
        r"name & p\_1 \\", r"\midrule", r"a\_b \& c|d & \textbf{$\pm$1 $<$ 2} \\",
        r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
    assert table.markdown().splitlines()[2:5] == [
        r"| name | p\_1 |", "| :-- | --: |", r"| a\_b & c\|d | **±1 \< 2** |",
    ]  # fmt: skip
    assert table.csv() == "name,p_1\na_b & c|d,±1 < 2\n"
    assert table.text().splitlines() == ["50% of {x}", "name          p_1", "a_b & c|d  ±1 < 2", "a note"]
