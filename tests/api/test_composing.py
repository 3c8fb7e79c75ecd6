"""Composites in memory are those of folders and commands; tuned as by the command; errors name the call."""

import gc
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from failing import raises
from fixture_types import Capsys

import grls
from grls.api.searcher import Searcher
from grls.cli import main
from grls.data.dataset import gold_passages, read_split
from grls.data.types import Hit
from grls.errors import ConfigError, DataError, GrlsError
from grls.retrieve.base import ranking_fingerprint, untuned_fingerprint
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.spec import read_spec, write_link

TEXTS = ["is the otter calm ?", "is the lynx quick ?", "is the heron proud ?"]


def load(place: Path) -> Searcher:
    return grls.load(place, device="cpu")


def same(one: Searcher, other: Searcher) -> None:
    assert one.search(TEXTS, 4) == other.search(TEXTS, 4)
    assert one.retriever.fingerprint() == other.retriever.fingerprint()


def test_hops_replace_hops(kinds: Path) -> None:
    generator = load(kinds / "generative")
    chains = generator.hops(max=3, steps="dynamic", chains=2, done_bias=0.5)
    same(chains, load(kinds / "hops"))
    same(chains.hops(max=2), generator.hops(max=2))


MADE: dict[str, tuple[Callable[[Path, Path | None], Searcher], str]] = {
    "hybrid": (
        lambda kinds, out: load(kinds / "generative").with_priors(
            load(kinds / "dense"), "bm25", weights=[0.5, 1.0], output=out
        ),
        "hybrid IN/generative --priors IN/dense bm25 --weights 0.5 1",
    ),
    "hops": (
        lambda kinds, out: load(kinds / "generative").hops(3, "dynamic", chains=2, output=out),
        "hops IN/generative --hops.steps=dynamic --hops.max=3 --hops.chains=2",
    ),
    "ranked": (
        lambda kinds, out: load(kinds / "hybrid").hops(2, temperature=0.5, output=out),
        "hops IN/hybrid --hops.steps=ranked --hops.max=2 --hops.temperature=0.5",
    ),
    "fusion": (
        lambda kinds, out: grls.fuse([load(kinds / "ranked"), "bm25"], method="sum", depth=7, output=out),
        "fusion IN/ranked bm25 --fusion.method=sum --depth=7",
    ),
    "chains": (
        lambda kinds, out: grls.fuse([load(kinds / "hops"), kinds / "chains"], output=out),
        "fusion IN/hops IN/chains",
    ),
    "rescored": (
        lambda kinds, out: load(kinds / "fusion").rescored(
            kinds / "encoder", passages=3, weight=0.5, output=out
        ),
        "rescored IN/fusion --model=IN/encoder --passages=3 --weight=0.5 --device=cpu",
    ),
}
"""A composite of every kind that Python makes: the call, and the command."""


@pytest.mark.parametrize("name", MADE)
def test_it_is_that_of_its_folder_its_copy_and_the_command(
    name: str, kinds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rankings, hops, what is said of it, and fingerprints."""
    monkeypatch.chdir(kinds.parent)
    (make, command), given = MADE[name], Path(kinds.name)
    words = command.replace("IN", str(given)).split()
    assert main(["index", *words, f"--output={tmp_path / 'command'}"]) == 0
    made, written = make(given, None), make(given, tmp_path / "written")
    assert read_spec(tmp_path / "written") == read_spec(tmp_path / "command")
    monkeypatch.chdir(tmp_path)
    made.save("saved")
    for other in (written, *(load(tmp_path / place) for place in ("command", "written", "saved"))):
        same(other, made)
        assert other.describe() == made.describe()
        assert ranking_fingerprint(other.retriever) == ranking_fingerprint(made.retriever)
        assert untuned_fingerprint(other.retriever) == untuned_fingerprint(made.retriever)
        assert list(other.stream(TEXTS[0])) == list(made.stream(TEXTS[0]))


def test_what_is_in_memory_writes_nothing_and_holds_weights_once(
    kinds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, dense, generator = grls.BM25(kinds / "data"), load(kinds / "dense"), load(kinds / "generative")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for kind in (BM25Retriever, DenseRetriever, GenerativeRetriever):
        monkeypatch.setattr(kind, "__init__", None)  # none is opened
    monkeypatch.setattr("grls.io.files.atomic_folder", None)
    hybrid: Any = generator.with_priors(dense, words).hops(2)
    fused: Any = grls.fuse([hybrid, dense.hops(2), words], method="rrf")
    assert fused.folder is None
    by_hops, encoder, last = fused.retriever.members
    assert by_hops.retriever.generator.model is generator.retriever.model
    assert by_hops.retriever.priors[0].source is encoder.retriever is dense.retriever
    assert by_hops.retriever.priors[1].source is last is words.retriever
    before = [one.search(TEXTS, 3) for one in (generator, dense, words)]
    assert fused.search(TEXTS, 3)
    assert [one.search(TEXTS, 3) for one in (generator, dense, words)] == before
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_lives_as_long_as_what_is_made_of_it(kinds: Path, tmp_path: Path) -> None:
    dense = grls.BiEncoder(kinds / "bert").index(kinds / "data", device="cpu")
    folder = dense.folder
    assert folder is not None
    outer = grls.fuse([dense, load(kinds / "bm25")], method="rrf").hops(max=2, temperature=0.01)
    expected = outer.search(TEXTS, 3)
    del dense
    gc.collect()
    assert folder.is_dir()
    outer.save(tmp_path / "saved")
    stream = outer.stream(TEXTS[0])
    del outer
    gc.collect()
    assert folder.is_dir()  # the hops that come hold it
    assert [hop.number for hop in stream] == [1, 2]
    del stream
    gc.collect()
    assert not folder.exists()
    assert load(tmp_path / "saved").search(TEXTS, 3) == expected


LINKED = {
    "fuse": {"dense"}, "named": {"dense"}, "priors": {"generative"}, "rescored": {"encoder"},
    "nested": {"in"}, "below": {"dense"},
}  # fmt: skip


def test_an_output_holds_its_members_without_one(kinds: Path, tmp_path: Path) -> None:
    """It named folders that went with the process."""

    def words() -> Searcher:
        return grls.BM25(kinds / "data")

    def save(searcher: Searcher) -> list[list[Hit]]:
        searcher.save(tmp_path / "saved")
        return searcher.search(TEXTS, 3)

    dense, generator = load(kinds / "dense"), load(kinds / "generative")
    calls: dict[str, Callable[[Path | None], Searcher]] = {
        "hops": lambda out: words().hops(2, output=out),
        "fuse": lambda out: grls.fuse([dense, words(), words().hops(2)], method="sum", output=out),
        "named": lambda out: grls.fuse([dense, str(indexed.folder)], output=out),
        "priors": lambda out: generator.with_priors(words(), "bm25", output=out),
        "rescored": lambda out: words().rescored(kinds / "encoder", output=out),
        "nested": lambda out: grls.fuse([dense.hops(2), words()], output=tmp_path / "in").hops(
            2, "fixed", output=out
        ),
        "below": lambda out: grls.fuse([dense, words().hops(2)], output=out and tmp_path / "in" / out.name),
    }
    indexed = grls.BiEncoder(kinds / "bert").index(kinds / "data", device="cpu")
    for name, make in calls.items():
        expected = save(make(None))
        made, folder = make(tmp_path / name), tmp_path / ("in/below" if name == "below" else name)
        assert made.search(TEXTS, 3) == expected, name
        del made
        gc.collect()  # what is temporary goes
        assert load(folder).search(TEXTS, 3) == expected, name
        named = [
            (file.parent / path).resolve()
            for file in folder.rglob("grls.json")
            for path in re.findall(r'"((?:\.\./)+[^"]*)"', file.read_text())
        ]
        linked = {path.name for path in named if not path.is_relative_to(folder)}
        assert linked == LINKED.get(name, set()), name  # what stays is not copied
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").touch()
    raises(ConfigError, "mine exists and holds no grls.json", words().hops, 2, output=tmp_path / "mine")


def test_a_composite_opens_as_its_first_member_was_opened(kinds: Path) -> None:
    searcher = grls.load(kinds / "dense", device="cpu", precision="bfloat16")
    assert searcher.hops().opening == searcher.opening
    assert isinstance(searcher.hops().search(TEXTS[0])[0], Hit)


QUICK = {"k": 3, "prior_weights": [0.5, 1.0]}


def dev(kinds: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    queries, qrels = read_split(kinds / "data", "dev")
    return {q.id: q.text for q in queries}, {q.id: gold_passages(q, qrels) for q in queries}


def test_it_chooses_as_the_command_does(kinds: Path, tmp_path: Path, capsys: Capsys) -> None:
    queries, gold = dev(kinds)
    dense, generator = load(kinds / "dense"), load(kinds / "generative")
    for name, made, options in (
        ("hybrid", lambda where: generator.with_priors(dense, "bm25", output=where), QUICK),
        ("fusion", lambda where: grls.fuse([dense, "bm25"], method="sum", output=where), {}),
        ("ranked", lambda where: dense.hops(max=2, output=where), {"hops": [1, 2]}),
    ):
        searcher = made(tmp_path / name)
        by_command = made(tmp_path / f"{name}-command")
        assert searcher.tune(queries, gold, **options) is searcher
        grid = [f"--grid.{key}={value}" for key, value in options.items()]
        command = ["tune", str(by_command.folder), f"--data={kinds / 'data'}", "--device=cpu", *grid]
        assert main(command) == 0
        assert read_spec(searcher.folder) == read_spec(by_command.folder), name
        assert not (tmp_path / f"{name}.tune.jsonl").exists()
        texts = list(queries.values())
        assert searcher.search(texts, 3) == load(searcher.folder).search(texts, 3)
    assert "->" in capsys.readouterr().out


def test_a_data_set_and_a_split_are_queries_and_gold(kinds: Path, tmp_path: Path, capsys: Capsys) -> None:
    dense = load(kinds / "dense")
    one = grls.fuse([dense.hops(steps="fixed", max=1), dense], method="sum").tune(kinds / "data", "dev")
    assert ".tmp" not in capsys.readouterr().out
    one = grls.fuse([dense, "bm25"], method="sum").tune(kinds / "data", "dev")
    other = grls.fuse([dense, "bm25"], method="sum").tune(*dev(kinds))
    one.save(tmp_path / "one")
    assert read_spec(tmp_path / "one")["weights"] == read_spec(other.save(tmp_path / "other"))["weights"]
    write_link(tmp_path / "run", tmp_path / "one")
    assert load(tmp_path / "run").tune(*dev(kinds)).folder == tmp_path / "run"


def test_what_cannot_be_tuned_stays(kinds: Path, tmp_path: Path) -> None:
    queries, gold = dev(kinds)
    fusion = grls.fuse([load(kinds / "dense"), "bm25"], method="sum", output=tmp_path / "fusion")
    before = read_spec(fusion.folder)
    raises(DataError, "zzz", fusion.tune, queries, {name: ["zzz"] for name in gold})
    assert read_spec(fusion.folder) == before
    downloaded = load(shutil.copytree(kinds / "dense", tmp_path / "snapshots" / "abc"))
    raises(ConfigError, "a download from the hub", downloaded.tune, queries, gold)


THREE = ["otters eat fish", "herons eat frogs", "a lynx is quick"]


def test_errors_name_a_folder_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``../idx/bm25`` was read from the folder itself: idx/idx/bm25/corpus.jsonl."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    grls.BM25(THREE, output="../idx/bm25").hops(2, output="../idx/hops")
    (tmp_path / "idx" / "else").mkdir()
    for given, corpus in (
        ("../idx/bm25", "../idx/bm25"),
        ("../idx/hops", "../idx/bm25"),
        ("../idx/else/../bm25", "../idx/else/../bm25"),
    ):
        told = rf"no passage of {re.escape(corpus)}/corpus\.jsonl"
        raises(GrlsError, told, load(Path(given)).search, "a", where="y>1")
