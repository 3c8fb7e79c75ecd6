"""``grls index`` and ``grls retrieve`` for every kind of retriever: what is written, what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from failing import fails
from fixture_types import Caplog, Capsys
from run_files import info_of
from small_data import passages, tiny_bert, write_jsonl, write_small

from grls.cli import main
from grls.data.dataset import read_split
from grls.errors import IndexFormatError
from grls.io.seal import verifying
from grls.models.biencoder import BiEncoderModel
from grls.retrieve import run as retrieving
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.combine import expected_f1
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, pooled_ranking
from grls.retrieve.registry import Opening, load_retriever, open_kind
from grls.runs import portions
from grls.runs.portions import read_info
from grls.runs.run import Run
from grls.runs.trec import read_run


@pytest.fixture(scope="module")
def sentence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sentence-transformers."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("sentence")
    BiEncoderModel.load(str(tiny_bert(folder / "bert")), device="cpu").save(folder / "model")
    return folder / "model"


def retrieve(data: Path, output: Path, *options: object) -> tuple[dict[str, list[str]], Any]:
    """Rankings as ids, and the manifest."""
    given = [f"--data={data}", f"--output={output}", "--device=cpu", *map(str, options)]
    assert main(["retrieve", *given]) == 0
    run = read_run(f"{output}.trec")
    return {query: [hit.id for hit in hits] for query, hits in run.items()}, read_info(output)


def test_a_generator_becomes_a_biencoder_on_request(data: Path, generative: Path, tmp_path: Path) -> None:
    arguments = [f"{generative / 'model'}", f"--corpus={data}", f"--output={tmp_path / 'r'}"]
    assert main(["index", *arguments, "--kind=st5", "--limits.input=40", "--device=cpu"]) == 0
    opened = open_kind(DenseRetriever, tmp_path / "r", Opening("cpu"))
    assert (opened.encoder.max_tokens, opened.encoder.dimension) == (40, 32)
    assert main(["index", *arguments, "--device=cpu"]) == 0  # by itself it is generative
    assert json.loads((tmp_path / "r" / "grls.json").read_text())["kind"] == "generative"


def test_an_encoder_of_no_known_kind_is_told_the_option_that_says_it(
    data: Path, sentence: Path, tmp_path: Path, capsys: Capsys
) -> None:
    line = ["index", str(tiny_bert(tmp_path / "bert")), f"--corpus={data}", f"--output={tmp_path / 'r'}"]
    kinds = "say of what kind: --kind dense or multi-vector or rescored or sparse or st5."
    assert kinds in fails(capsys, *line)
    assert "--kind" not in fails(capsys, *line, "--kind=generative")
    assert main([*line, "--kind=dense", "--device=cpu"]) == 0
    other = fails(capsys, "index", sentence, *line[2:], "--kind=st5")
    assert "index it with --kind dense" in other


def test_a_similarity_names_the_kind_that_takes_it(data: Path, tmp_path: Path, capsys: Capsys) -> None:
    model, output = str(tiny_bert(tmp_path / "bert")), tmp_path / "r"
    line = ["index", model, f"--corpus={data}", f"--output={output}", "--similarity=euclidean"]
    assert "a retriever of kind 'generative' has no --similarity; leave it out" in fails(capsys, *line)
    assert main([*line, "--kind=dense", "--device=cpu"]) == 0
    assert open_kind(DenseRetriever, output, Opening("cpu")).encoder.similarity == "euclidean"


def test_dynamic_chains_end_with_done(data: Path, dense: Path, tmp_path: Path, caplog: Caplog) -> None:
    for bias, hops in ((99, 1), (-99, 3)):
        options = (dense, "--hops.steps=dynamic", "--hops.max=3", f"--hops.done_bias={bias}")
        found, info = retrieve(data, tmp_path / "o", *options)
        assert {len(ids) for ids in found.values()} == {hops}
        assert (info.steps, info.options["done_bias"]) == ("dynamic", bias)
        lines = (tmp_path / "o.jsonl").read_text().splitlines()
        assert {json.loads(line)["chain"]["done"] for line in lines} == {bias > 0}
        assert ("2 of 2 chains ended without DONE" in caplog.text) == (bias < 0)


CHAINS = {"chains": 3, "branch": 3}


@pytest.mark.parametrize(("kind", "given", "hops", "name", "stored"), [
    ("dense", "", HopOptions("fixed", 2, **CHAINS), "biencoder, fixed", {**CHAINS, "pool": False}),
    ("bm25", "", HopOptions("fixed", 2, **CHAINS), "bm25, fixed", {**CHAINS, "pool": False}),
    ("bm25", "pool=true", HopOptions("fixed", 2, **CHAINS), "bm25, fixed, pooled", {"pool": True}),
    ("generative", "choose=expected-f1", HopOptions("dynamic", 2, **CHAINS), "dynamic",
     {"choose": "expected-f1"}),
])  # fmt: skip
def test_a_run_of_chains_is_the_librarys_and_says_what_made_it(
    kind: str, given: str, hops: HopOptions, name: str, stored: dict[str, Any], kinds: Path, tmp_path: Path
) -> None:
    data, which = kinds / "data", "bm25" if kind == "bm25" else kinds / kind
    options = [f"--hops.steps={hops.steps}", "--hops.max=2", "--hops.chains=3"]  # branch follows
    found, info = retrieve(data, tmp_path / "o", which, *options, *([f"--hops.{given}"] if given else []))
    queries = read_split(data, "test")[0]
    chains = HopsRetriever(load_retriever(kinds / kind, Opening("cpu")), hops).retrieve_chains(queries)
    take = {
        "": lambda some: some[0].hits,
        "pool=true": lambda some: pooled_ranking(some, 10),
        "choose=expected-f1": lambda some: expected_f1(some).hits,
    }[given]
    expected = {q.id: take(some) for q, some in zip(queries, chains, strict=True)}
    assert found == {query: [hit.id for hit in hits] for query, hits in expected.items() if hits}
    run = Run.load(tmp_path / "o.jsonl")
    assert run.in_hop_order == ("choose" not in given)
    if "choose" in given:  # scores are not added up
        for query, hits in run.rankings.items():
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected[query]])
    assert info.name.endswith(name)
    assert info.options.items() >= stored.items()


def test_ids_with_white_space_have_no_trec_run(data: Path, tmp_path: Path, caplog: Caplog) -> None:
    shutil.copytree(data, tmp_path / "data")
    for name in ("queries.jsonl", "qrels/test.tsv"):
        text = (tmp_path / "data" / name).read_text()
        first = read_split(data, "test")[0][0].id
        (tmp_path / "data" / name).write_text(text.replace(first, f"query {first}"))
    given = [f"--data={tmp_path / 'data'}", f"--output={tmp_path / 'o'}"]
    assert main(["retrieve", "bm25", *given]) == 0
    assert "the query id 'query " in caplog.text
    assert not (tmp_path / "o.trec").exists()
    assert read_info(tmp_path / "o.jsonl") is not None
    assert main(["evaluate", f"{tmp_path / 'o.jsonl'}", f"--data={tmp_path / 'data'}"]) == 0


def test_a_run_is_scored_against_the_split_it_was_retrieved_for(
    data: Path, tmp_path: Path, capsys: Capsys
) -> None:
    run = tmp_path / "o"
    assert main(["retrieve", f"--data={data}", f"--output={run}", "bm25", "--split=dev"]) == 0
    report = tmp_path / "report.json"
    assert main(["evaluate", f"{run}.jsonl", f"--data={data}", f"--output={report}"]) == 0
    assert json.loads(report.read_text())["split"] == "dev"
    assert "is of the split dev, and --split asks for test" in fails(
        capsys, "evaluate", f"{run}.jsonl", f"--data={data}", "--split=test"
    )


def test_filters_by_ids_by_metadata_and_by_the_queries_own(
    data: Path, generative: Path, tmp_path: Path, capsys: Capsys, caplog: Caplog
) -> None:
    other = tmp_path / "data"
    shutil.copytree(data, other)
    lines = [
        {"_id": p.id, "text": p.text, "metadata": {"kind": "rule" if p.id[0] == "r" else "fact"}}
        for p in passages()
    ]
    write_jsonl(other / "corpus.jsonl", lines)
    folder = tmp_path / "retriever"
    made = (f"{generative / 'model'}", f"--corpus={other}", f"--output={folder}")
    assert main(["index", *made, "--device=cpu"]) == 0
    (tmp_path / "ids").write_text("r0\notter-calm\n")
    for which in (folder, "bm25"):
        found, info = retrieve(other, tmp_path / "o", which, "--where=kind=rule")
        assert {name for ids in found.values() for name in ids} <= {"r0", "r1"}
        assert info.options["where"] == "kind=rule"
    found, _ = retrieve(other, tmp_path / "o", folder, f"--allow={tmp_path / 'ids'}")
    assert {frozenset(ids) for ids in found.values()} == {frozenset({"r0", "otter-calm"})}
    both = (f"--allow={tmp_path / 'ids'}", "--where=kind=rule")
    found, _ = retrieve(other, tmp_path / "o", folder, *both)
    assert {tuple(ids) for ids in found.values()} == {("r0",)}
    records = [json.loads(line) for line in (other / "queries.jsonl").read_text().splitlines()]
    for record in records:
        record["metadata"] = {"allow": ["r1"]}
    write_jsonl(other / "queries.jsonl", records)
    records[-1]["metadata"] = {"allow": []}
    write_jsonl(other / "queries.jsonl", records)
    chosen = (
        "--query_filters=true", "--hops.steps=dynamic", "--hops.choose=expected-f1",
        "--hops.done_bias=-9",
    )  # fmt: skip
    found, _ = retrieve(other, tmp_path / "o", folder, *chosen)
    assert [tuple(found.get(query.id, ())) for query in read_split(other, "test")[0]] == [("r1",), ()]
    asked = (
        "retrieve", f"--data={other}", f"--output={tmp_path / 'o'}", "--device=cpu", folder,
    )  # fmt: skip
    assert "the metadata field 'knd': the fields are kind" in fails(capsys, *asked, "--where=knd=rule")
    assert main([*map(str, asked), "--where=kind=poem"]) == 0
    assert "leaves no passage" in caplog.text
    (tmp_path / "ids").write_text("zebra\n")
    assert "passage id 'zebra'" in fails(capsys, *asked, f"--allow={tmp_path / 'ids'}")


@pytest.mark.parametrize("options", [("bm25",), ("GENERATIVE", "--hops.steps=dynamic", "--hops.max=3")])
def test_a_killed_run_goes_on_and_writes_what_a_whole_one_does(
    options: tuple[str, ...],
    data: Path,
    generative: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capsys,
) -> None:
    given = [str(generative) if option == "GENERATIVE" else option for option in options]
    folder = Path(shutil.copytree(data, tmp_path / "data"))
    arguments = ["retrieve", f"--data={folder}", "--split=train", "--device=cpu", *given]
    arguments += ["--search.batch_size=1", "--limit=7"]
    assert main([*arguments, f"--output={tmp_path / 'whole'}"]) == 0
    assert not (tmp_path / "whole.retrieved.jsonl").exists()
    asked: list[int] = []
    whole = retrieving.retrieve_results

    def counted(opened: Any, queries: Any, *rest: Any) -> Any:
        asked.append(len(queries))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return whole(opened, queries, *rest)

    monkeypatch.setattr(portions, "PORTION", 2)
    monkeypatch.setattr(retrieving, "retrieve_results", counted)
    cut = [*arguments, f"--output={tmp_path / 'cut'}"]
    assert main(cut) == 130
    assert not (tmp_path / "cut.trec").exists()
    growing = tmp_path / "cut.retrieved.jsonl"
    lines = growing.read_text().splitlines(keepends=True)
    assert len(lines) == 5
    growing.write_text("".join(lines[:4]) + lines[4][:9])  # cut within the second portion
    for other, named in (("--k=4", "options"), ("--limit=8", "queries")):
        assert f"cut.retrieved.jsonl was begun with other settings ({named})" in fails(capsys, *cut, other)
    if options == ("bm25",):  # a filter would let through other passages than before
        before = (folder / "corpus.jsonl").read_text()
        (folder / "corpus.jsonl").write_text(before.replace('"metadata": {}', '"metadata": {"y": 1}', 1))
        assert "other settings (metadata)" in fails(capsys, *cut)
        (folder / "corpus.jsonl").write_text(before)
    assert main(cut) == 0
    total = sum(1 for _ in (tmp_path / "whole.jsonl").open())
    assert asked == [2, 2, 2, *[2] * ((total - 2) // 2), *[1] * (total % 2)]
    assert not growing.exists()
    for ending in (".trec", ".jsonl"):
        assert (tmp_path / f"cut{ending}").read_bytes() == (tmp_path / f"whole{ending}").read_bytes()
    costs: dict[str, Any] = {"seconds": 0.0, "computed_tokens": 0, "index_seconds": 0.0}
    first, second = (replace(info_of(tmp_path / name), **costs) for name in ("whole", "cut"))
    assert first == second
    assert first.search == ("fast on cpu" if "GENERATIVE" in options else "")


@pytest.fixture(scope="module")
def damaged(generative: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A retriever of whose index one bit is another."""
    folder = Path(shutil.copytree(generative, tmp_path_factory.mktemp("damaged") / "r"))
    file = folder / "index" / "tokens.npy"
    whole = bytearray(file.read_bytes())
    whole[-2] ^= 1
    file.write_bytes(whole)
    return folder


def test_checksums_are_compared_where_it_is_asked_for(
    data: Path, damaged: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large index a sample is compared otherwise."""
    monkeypatch.setattr("grls.io.seal.CHECKED_BYTES", 0)
    monkeypatch.setattr("grls.io.seal._sample", lambda file: _sampled(file, damaged))
    GenerativeRetriever.from_pretrained(damaged, "cpu")
    line = fails(capsys, "explain", "who", f"--retriever={damaged}", f"--data={data}", "--verify=true")
    assert f"{damaged / 'index' / 'tokens.npy'}: it has changed since it was written" in line
    with pytest.raises(IndexFormatError, match="checksum differs"), verifying(True):
        GenerativeRetriever.from_pretrained(damaged, "cpu")
    GenerativeRetriever.from_pretrained(damaged, "cpu")


def _sampled(file: Path, folder: Path) -> str:
    """The checksum of a sample as the manifest has it: the damage is elsewhere."""
    files = json.loads((folder / "index" / "index.json").read_text())["files"]
    return str(files[file.name]["sample"])


GOLD_CHECKED = {
    "retrieve": ["retrieve", "bm25"], "tune": ["tune", "bm25"],
    "explain": ["explain", "all", "--retriever", "bm25"],
    "direct": ["answer", "direct", "--model", "nowhere"],
    "riches": ["answer", "riches", "--model", "nowhere"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("retrieve", "qrel"),
        ("explain", "qrel"),
        ("tune", "evidence"),
        ("direct", "evidence"),
        ("riches", "qrel"),
    ],
)
def test_gold_passages_that_the_corpus_lacks_are_told(
    command: str, place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_small(tmp_path / "data")
    if place == "qrel":
        with (data / "qrels" / "dev.tsv").open("a") as stream:
            stream.write(f"{read_split(data, 'dev')[0][0].id}\tgone\t1\n")
    else:
        records = [json.loads(line) for line in (data / "queries.jsonl").read_text().splitlines()]
        write_jsonl(data / "queries.jsonl", [{**record, "evidence": ["gone"]} for record in records])
    given = [*GOLD_CHECKED[command], "--data", str(data), "--split", "dev"]
    given += [] if command == "tune" else ["--output", str(tmp_path / "out")]
    right = command in ("retrieve", "explain")
    assert main(given) == (0 if right else 1), "there is no model for the others"
    if command == "explain":  # one query, and not told again
        given[1] = read_split(data, "dev")[0][0].id
        assert main(given) == 0
    (said,) = [text for text in caplog.messages if "1 judged passage is not in" in text]
    assert "such as 'gone' of the query" in said
