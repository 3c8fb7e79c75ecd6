"""A local Ray cluster of two workers, one of which is killed half-way: the results of one process."""

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dying
import pytest
from encoder_models import tiny_colbert, tiny_splade
from failing import fails
from small_data import contents, tiny_bert

from grls.cli import main
from grls.cluster import shards, workers
from grls.cluster.options import LOCAL, WorkerOptions, Workers
from grls.errors import ConfigError, GrlsError
from grls.index.options import IndexOptions
from grls.index.ranges import PartFiles, PartsOnRay, RangedIndex
from grls.retrieve.build import Building, build
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.runs.trec import read_run

ray = pytest.importorskip("ray", reason="the extra ray is not installed")


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cluster for all tests, since it takes seconds to start; --ray local uses it."""
    ray.cloudpickle.register_pickle_by_value(dying)  # workers do not see the folder of this module
    before = signal.getsignal(signal.SIGTERM)
    with workers.Cluster.opened(Workers(LOCAL, WorkerOptions(count=2))):
        assert signal.getsignal(signal.SIGTERM) is before  # a signal ends a command as without Ray
        yield


@pytest.fixture(scope="module")
def made(kinds: Path) -> Path:
    return kinds / "generative"


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Lets the worker of shard 1 die once, in the next work that is shared; it has died at the end."""
    mark = tmp_path / "mark"

    def killing() -> None:
        real = shards.done_by_workers

        def killed_once(plan: Any, make: Any, *rest: Any) -> Any:
            return real(plan, dying.DyingMaker(make, 1, str(mark)), *rest)

        monkeypatch.setattr(shards, "done_by_workers", killed_once)

    yield killing
    assert mark.exists()


def test_an_index_is_that_of_one_process_though_a_worker_is_killed(
    data: Path, made: Path, tmp_path: Path, killed: Callable[[], None]
) -> None:
    model = str(made / "model")
    build(model, str(data), Building(f"{tmp_path}/one", "generative", IndexOptions()))
    killed()
    workers = Workers(LOCAL, WorkerOptions(shard=3))
    build(model, str(data), Building(f"{tmp_path}/two", "generative", IndexOptions(), workers=workers))
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mark", "one", "two"]


@pytest.mark.parametrize("kind", ["dense", "sparse", "multi-vector"])
def test_encodings_are_those_of_one_process_though_a_worker_is_killed(
    kind: str, data: Path, tmp_path: Path, killed: Callable[[], None]
) -> None:
    makers = {"dense": tiny_bert, "sparse": tiny_splade, "multi-vector": tiny_colbert}
    model = makers[kind](tmp_path / "model")
    how = Building(f"{tmp_path}/one", kind, device="cpu", batch_size=1)
    build(str(model), str(data), how)
    killed()
    workers = Workers(LOCAL, WorkerOptions(shard=4))
    build(str(model), str(data), replace(how, output=f"{tmp_path}/two", workers=workers))
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_a_run_is_that_of_one_process(data: Path, made: Path, tmp_path: Path) -> None:
    given = ["retrieve", f"{made}", f"--data={data}", "--split=train", "--device=cpu", "--k=4"]
    assert main([*given, f"--output={tmp_path}/one"]) == 0
    assert main([*given, f"--output={tmp_path}/two", "--ray=local", "--workers.shard=5"]) == 0
    one, two = (read_run(f"{tmp_path}/{name}.trec") for name in ("one", "two"))
    assert list(one) == list(two)
    for query, hits in one.items():
        assert [hit.id for hit in two[query]] == [hit.id for hit in hits]
        assert [hit.score for hit in two[query]] == pytest.approx([hit.score for hit in hits], abs=1e-5)
    infos = [json.loads((tmp_path / f"{name}.info.json").read_text()) for name in ("one", "two")]
    # Scores are those of one process up to the rounding of float32; tokens are not counted elsewhere, and
    # workers choose their search.
    rounded = ("seconds", "files", "computed_tokens", "search")
    assert len({json.dumps({name: i[name] for name in i if name not in rounded}) for i in infos}) == 1
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []


def test_ranges_on_the_cluster_find_what_the_whole_index_finds(made: Path, tmp_path: Path) -> None:
    texts = ["is the otter calm ?", "is the lynx proud ?", "something"]
    split = tmp_path / "split"
    assert main(["index", "split", f"{made}", f"--output={split}", "--parts=3", "--ray=local"]) == 0
    one, two = (GenerativeRetriever.from_pretrained(retriever, "cpu") for retriever in (made, split))
    assert isinstance(two.index, RangedIndex)
    parts = two.index.rows.parts
    assert isinstance(parts, PartsOnRay)
    for beams in (1, 4):
        one.options = two.options = SearchOptions(beams=beams)
        assert two.retrieve(texts, beams) == one.retrieve(texts, beams)
    first = PartFiles(split / "index/part-0", split / "index/numbers-0.npy")
    for gone in (first._replace(folder=tmp_path / "gone"), first._replace(numbers=tmp_path / "gone.npy")):
        with pytest.raises(GrlsError, match=f"{tmp_path}/gone"):
            PartsOnRay([first, gone], LOCAL)
    ray.kill(parts._actors[1])
    with pytest.raises(ConfigError, match="the actor of part 1 of the index has ended"):
        two.retrieve(texts, 4)
    parts.close()


def test_a_machine_that_differs_is_refused_before_the_work(
    data: Path,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = workers._versions()
    monkeypatch.setattr(workers, "_versions", lambda: {**here, "grls": "99.0"})
    given = ["index", made / "model", f"--corpus={data}", f"--output={tmp_path}/r", "--ray=local"]
    message = fails(capsys, *given)
    assert "of the Ray cluster cannot do the work: it has grls" in message
    assert not (tmp_path / "r").exists()


def test_more_processors_than_a_machine_has_are_refused(data: Path, made: Path, tmp_path: Path) -> None:
    options = replace(WorkerOptions(), cpus=500)
    workers = Workers(LOCAL, options)
    with pytest.raises(ConfigError, match="has 500 processors and 0 GPUs"):
        build(str(made / "model"), str(data), Building(f"{tmp_path}/r", "generative", workers=workers))
