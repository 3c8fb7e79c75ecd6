"""``grls fuse``: what is kept, written and refused."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from failing import fails, refuses
from small_data import passages, write_small

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_split, write_dataset
from grls.data.types import Chain, Hit
from grls.runs.portions import RunInfo, fingerprint_queries, read_info
from grls.runs.run import Run

ROOT = Path(__file__).parents[2]
IDS = [passage.id for passage in passages()]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with a data set ``data``."""
    write_small(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(output, first=0, split="test", data="data", steps="single", system="generator", depth=4, **changes):
    """A run of ours: ``depth`` passages a query from number ``first`` on, as a chain but where single."""
    corpus, (asked, _) = Corpus.read(data), read_split(data, split)
    info = RunInfo(
        system, f"{system} {first}", steps, corpus.fingerprint, fingerprint_queries(asked), data, split,
        score_mode="full", stages=("retrieve",), seconds=2.0,
    )  # fmt: skip
    hits = [Hit(IDS[(first + n) % len(IDS)], -float(n)) for n in range(depth)]
    info = dataclasses.replace(info, **changes)
    chains = {query.id: Chain(tuple(hits), -1.0, done=True) for query in asked}
    run = Run.of(chains=chains, info=info)
    if steps == "single":
        run = Run.of({query.id: hits for query in asked}, info=info)
    run.save(output, asked, corpus)
    return f"{output}.jsonl"


def tuning(runs):
    """The option that names runs to tune on."""
    return f"--tune.runs={json.dumps(list(runs))}"


def trec(file, ranked):
    """A run of another tool."""
    lines = [f"{q} Q0 {p} 0 {9 - n} x\n" for q, some in ranked.items() for n, p in enumerate(some)]
    Path(file).write_text("".join(lines))
    return str(file)


def fused(*arguments):
    assert main(["fuse", *arguments, "--output", "out/e"]) == 0
    results = Run.load("out/e.jsonl" if Path("out/e.jsonl").exists() else "out/e.trec")
    return {query: [hit.id for hit in hits] for query, hits in results.rankings.items()}


def test_runs_of_ours_are_interleaved_and_say_what_made_them(place, capsys):
    asked, _ = read_split("data", "test")
    found = fused(write("a"), write("b", 2), "--k", "5")
    assert found == {query.id: [IDS[n] for n in (0, 2, 1, 3, 4)] for query in asked}
    assert Run.load("out/e.jsonl").score_mode == "interleave"
    assert [h.id for h in Run.load("out/e.trec").rankings[asked[0].id]] == found[asked[0].id]
    info, member = read_info("out/e.jsonl"), read_info("a.jsonl")
    assert (info.system, info.steps, info.data, info.split) == ("ensemble", "single", "data", "test")
    assert (info.corpus, info.queries) == (member.corpus, member.queries)
    assert info.members == ("generator 0", "generator 2")
    assert info.name == "interleave of generator 0 + generator 2"
    assert info.stages == ("retrieve",)
    assert info.seconds >= 4.0
    assert info.options["runs"] == ["a.jsonl", "b.jsonl"]
    assert "out/e.trec, out/e.jsonl: 2 queries" in capsys.readouterr().out
    assert main(["evaluate", "out/e.jsonl", "--data", "data"]) == 0


def test_weights_and_method_are_used_and_recorded(place):
    write("a"), write("b", 2)
    found = fused("a.jsonl", "b.jsonl", "--fusion.method=sum", "--fusion.weights=[0.2, 0.8]")
    assert next(iter(found.values())) == [IDS[2], IDS[3], IDS[4], IDS[0]]
    info = read_info("out/e.jsonl")
    assert info.options["weights"] == [0.2, 0.8]
    assert info.score_mode == "sum"
    found = fused("a.jsonl", "b.jsonl", "--fusion.method=rrf", "--k=2")
    assert next(iter(found.values())) == [IDS[2], IDS[3]]
    weights = ("--fusion.method", "sum", "--fusion.weights", "[0.2, 0.8]")
    fused("a.jsonl", "b.jsonl", *weights)
    assert read_info("out/e.jsonl").options["weights"] == [0.2, 0.8]
    fused(*weights, "a.jsonl", "b.jsonl")  # a list ends where its bracket does
    assert read_info("out/e.jsonl").options["weights"] == [0.2, 0.8]


def test_a_query_that_a_run_lacks_is_never_dropped(place, caplog):
    one = trec("one.trec", {"q-lynx-kind": IDS[:2], "q-lynx-proud": IDS[:1]})
    two = trec("two.trec", {"q-lynx-kind": IDS[2:4]})
    found = fused(one, two, "--data", "data", "--split", "test")
    assert found == {"q-lynx-kind": [IDS[0], IDS[2]], "q-lynx-proud": [IDS[0]]}
    assert "two.trec lacks 1 of 2 queries ('q-lynx-proud')" in caplog.text
    assert read_info("out/e.jsonl").split == "test"


def test_runs_of_other_tools_without_data_give_a_trec_run_alone(place, capsys):
    runs = (trec("one.trec", {"x": ["p", "r"]}), trec("two.trec", {"x": ["s"]}))
    assert fused(*runs) == {"x": ["p", "s"]}
    assert sorted(file.name for file in Path("out").iterdir()) == ["e.info.json", "e.trec"]
    info = read_info("out/e.trec")
    assert (info.corpus, info.queries, info.data, info.members) == ("", "", "", ("one", "two"))
    Path("out/e.jsonl").write_text("{}\n")
    capsys.readouterr()
    assert "out/e.jsonl is there already" in fails(capsys, "fuse", *runs, "--output=out/e")


def dev_runs(split="dev"):
    """Runs to tune on: the first is useless, the second has the gold of each query first."""
    asked, qrels = read_split("data", split)
    corpus = Corpus.read("data")
    made = []
    for name, found in (("bad", lambda q: IDS[:4]), ("good", lambda q: list(qrels[q.id]))):
        lists = [[Hit(i, -float(n)) for n, i in enumerate(found(q))] for q in asked]
        info = RunInfo(
            "generator", name, "single", corpus.fingerprint, fingerprint_queries(asked), "data", split,
            score_mode="full", stages=("retrieve",),
        )  # fmt: skip
        rankings = {query.id: hits for query, hits in zip(asked, lists, strict=True)}
        Run.of(rankings, info=info).save(f"{name}-dev", asked, corpus)
        made.append(f"{name}-dev.jsonl")
    return made


@pytest.mark.parametrize("method", ["rrf", "sum"])
def test_weights_are_tuned_on_dev_and_used(place, capsys, method):
    write("a"), write("b", 2)
    dev = dev_runs()
    found = fused("a.jsonl", "b.jsonl", f"--fusion.method={method}", tuning(dev), "--tune.k=1")
    info = read_info("out/e.jsonl")
    low, high = info.options["weights"]
    assert low < high
    assert low + high == pytest.approx(1)
    assert info.options["tuned_recall@1"] == 1.0
    assert info.options["tune"] == dev
    assert "recall@1 100.0 on dev" in capsys.readouterr().out
    weights = f"--fusion.weights={info.options['weights']}"
    assert fused("a.jsonl", "b.jsonl", f"--fusion.method={method}", weights) == found


def test_runs_to_tune_on_are_of_the_split_of_their_manifests_or_of_dev(place, capsys):
    write("a"), write("b", 2)
    tune = ("a.jsonl", "b.jsonl", "--fusion.method=sum", "--tune.k=1")
    fused(*tune, tuning(dev_runs("train")))
    assert "recall@1 75.0 on train" in capsys.readouterr().out
    dev_runs()
    for manifest in Path().glob("*-dev.info.json"):
        manifest.unlink()
    fused(*tune, tuning(["bad-dev.trec", "good-dev.trec"]))
    assert "recall@1 100.0 on dev" in capsys.readouterr().out


def test_the_shipped_config(place):
    """Without it the paper's ensemble; with it weights that dev decides."""
    pair = ((0, "generator"), (2, "biencoder"))
    test, dev = (
        [write(f"{name}{ending}", first, split, system=name, options={"k": 10}) for first, name in pair]
        for split, ending in (("test", ""), ("dev", "-dev"))
    )
    assert main(["fuse", *test, "--output=paper"]) == 0
    assert read_info("paper.jsonl").options["method"] == "interleave"
    config = ["--config", str(ROOT / "configs" / "fusion.yaml")]
    assert main(["fuse", *test, *config, tuning(dev), "--output=tuned"]) == 0
    info = read_info("tuned.jsonl")
    assert info.options["method"] == "sum"
    assert sum(info.options["weights"]) == pytest.approx(1)


DEV = "--tune.runs=[bad-dev.jsonl,good-dev.jsonl]"
REFUSED = (
    ("a.jsonl of-dev.jsonl", "2 are in a.jsonl alone ('q-lynx-kind', 'q-lynx-proud')"),
    ("a.jsonl b.jsonl --split=dev", "other queries than data, split dev, holds (it is of data, split test)"),
    ("a.jsonl b.jsonl --data other --split test", "a.jsonl was made with another corpus than other holds"),
    ("one.trec two.trec", "('q-lynx-proud'). Say which queries were asked: --data DIR --split S."),
    ("calm.trec two.trec --data=data --split=test", "calm.trec: 'q-otter-calm' (1 in all) are not among the"),
    ("nowhere.trec two.trec --data=data", "nowhere.trec: 'nowhere' (1 in all) are no passages of data/"),
    ("x.trec y.trec --data=data", "query id 'x' of the results is not in data/queries.jsonl"),
    ("x.trec y.trec --split=test", "--split needs a data set"),
    (f"x.trec y.trec --fusion.method=sum {DEV}", "need the gold passages"),
    ("a.jsonl", "at least two runs, got ['a.jsonl']"),
    ("a.jsonl a.jsonl", "a.jsonl and a.jsonl are the same run"),
    ("a.jsonl b.jsonl ./a.trec", "a.jsonl and ./a.trec are the same run"),
    ("a.jsonl b.jsonl --output=b", "--output b would replace b.jsonl"),
    ("changed.jsonl b.jsonl", "changed.jsonl has changed since this manifest was written"),
    ("a.jsonl b.jsonl --fusion.weights=[1,2]", "interleaving takes no weights"),
    ("a.jsonl b.jsonl --fusion.method=rrf --fusion.weights=[1,2,3]", "3 weights for 2 members"),
    ("a.jsonl b.jsonl --k=0", "k must be at least 1, got 0"),
    ("a.jsonl dynamic.jsonl", "dynamic.jsonl is dynamic: chains that end by themselves are not fused"),
    ("a.jsonl b.jsonl --fusion.method=sum --tune.runs=[x,y,z]", "3 runs to tune on for 2"),
    ("a.jsonl b.jsonl --fusion.method=sum --tune.k=5", "give --tune.runs, too, or leave it out"),
    (f"a.jsonl b.jsonl --fusion.method=sum --fusion.weights=[1,1] {DEV}", "give either --fusion.weights"),
    (f"a.jsonl b.jsonl {DEV}", "interleaving takes none; choose --fusion.method rrf or"),
    (
        f"a.jsonl b.jsonl --fusion.method=sum {DEV} --tune.k=5",
        "bad-dev.jsonl was cut off at 4 passages a query, so it has no recall@5: retrieve again with",
    ),
    (
        "a.jsonl b.jsonl --fusion.method=sum --tune.runs=[b.jsonl,a.jsonl]",
        "are queries of the runs to tune on and of what is given, too; tune on other queries",
    ),
    (
        "a.jsonl b.jsonl --fusion.method=sum --tune.runs=[bad-dev.jsonl,of-dev.jsonl]",
        "of-dev.jsonl (bm25, retrieve, single) is to tune the weight of b.jsonl (generator",
    ),
)  # fmt: skip


def test_what_cannot_work_is_refused(place, capsys, caplog):
    write("a"), write("b", 2), write("copy"), write("changed", 1), write("dynamic", steps="dynamic")
    write("of-dev", split="dev", system="bm25"), dev_runs()
    asked, qrels = read_split("data", "test")
    write_dataset("other", reversed(passages()), asked, {"test": qrels})
    for name, first in (("one", "q-lynx-proud"), ("calm", "q-otter-calm")):
        trec(f"{name}.trec", {"q-lynx-kind": IDS[:2], first: IDS[:1]})
    trec("two.trec", {"q-lynx-kind": IDS[2:4]}), trec("nowhere.trec", {"q-lynx-kind": [IDS[0], "nowhere"]})
    trec("x.trec", {"x": IDS[:1]}), trec("y.trec", {"x": IDS[1:2]})
    with Path("changed.jsonl").open("a") as stream:
        stream.write("\n")
    before = {file.name: file.read_bytes() for file in place.glob("*.*")}
    for line, said in REFUSED:
        output = () if "--output" in line else ("--output=out/e",)
        assert said in fails(capsys, "fuse", *line.split(), *output), line
        assert {file.name: file.read_bytes() for file in place.glob("*.*")} == before
    assert "average" in refuses(capsys, "fuse", "a.jsonl", "b.jsonl", "--output=e", "--fusion.method=average")
    fused("a.jsonl", "copy.jsonl")
    assert "a.jsonl and copy.jsonl hold the same results" in caplog.text
    shutil.rmtree("data")
    told = fails(capsys, "fuse", "a.jsonl", "b.jsonl", "--output=e")
    assert "a.jsonl was retrieved from data, no folder here; give --data DIR" in told
