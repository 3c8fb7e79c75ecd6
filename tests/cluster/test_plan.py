"""Shards on disk: what is done is kept, and nothing is gathered that is incomplete or of other work."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from grls.cluster.options import WorkerOptions, Workers, workers_of
from grls.cluster.plan import Shard, ShardPlan, held_shards
from grls.cluster.shards import done_by_workers
from grls.errors import ConfigError, DataError, MismatchError


def counted(shard: Shard, folder: Path) -> dict[str, Any]:
    """The work of these tests."""
    (folder / "numbers.txt").write_text(" ".join(map(str, range(shard.first, shard.end))), encoding="utf-8")
    return {"sum": sum(range(shard.first, shard.end))}


def plan_of(folder: Path, **settings: str) -> ShardPlan:
    return ShardPlan(folder, {"corpus": "c", **settings}, items=10, size=4)


def test_shards_cover_all_items_once() -> None:
    assert plan_of(Path("x")).shards == [Shard(0, 0, 4), Shard(1, 4, 8), Shard(2, 8, 10)]
    assert ShardPlan("x", {}, 8, 4).shards == [Shard(0, 0, 4), Shard(1, 4, 8)]


def test_only_missing_shards_are_done(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "shards")
    assert plan.begin() == plan.shards
    plan.do(plan.shards[1], counted)
    asked: list[int] = []

    def noted(shard: Shard, folder: Path) -> dict[str, Any]:
        asked.append(shard.number)
        return counted(shard, folder)

    done = done_by_workers(plan, lambda: noted, Workers(), "count", "items")
    assert asked == [0, 2]
    assert [one.result["sum"] for one in done] == [6, 22, 17]
    assert done_by_workers(plan, lambda: noted, Workers(), "count", "items") == done
    assert asked == [0, 2]
    shutil.rmtree(plan.folder)
    assert not (tmp_path / "shards").exists()


def test_an_incomplete_set_is_refused(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    plan.begin()
    plan.do(plan.shards[0], counted)
    with pytest.raises(DataError, match=r"missing: 2 of 3 shards, the first is number 1 \(items 4 to 7\)"):
        plan.gather()


@pytest.mark.parametrize("shards", [0, 1])
def test_an_interrupt_leaves_finished_shards_and_no_plan_without_any(tmp_path: Path, shards: int) -> None:
    with suppress(KeyboardInterrupt), held_shards(tmp_path / "out") as folder:
        plan = plan_of(folder)
        for shard in plan.begin()[:shards]:
            plan.do(shard, counted)
        raise KeyboardInterrupt
    assert len([*folder.glob("shard-*")]) == shards
    assert folder.exists() == bool(shards)


def test_a_shard_whose_work_fails_leaves_nothing(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    plan.begin()

    def failing(shard: Shard, folder: Path) -> dict[str, Any]:
        counted(shard, folder)
        raise DataError("no")

    with pytest.raises(DataError):
        plan.do(plan.shards[0], failing)
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]


def test_shards_of_other_work_are_refused(tmp_path: Path) -> None:
    one, other = plan_of(tmp_path / "one"), plan_of(tmp_path / "other", corpus="another")
    for plan in (one, other):
        done_by_workers(plan, lambda: counted, Workers(), "count", "items")
    with pytest.raises(MismatchError, match=r"other settings \(corpus\); give the options"):
        plan_of(tmp_path / "one", corpus="another").begin()
    with pytest.raises(MismatchError, match=r"other settings \(items"):
        ShardPlan(tmp_path / "one", one.settings, 11, 4).begin()
    for file in one.folder_of(one.shards[1]).iterdir():  # a shard that was copied from elsewhere
        file.write_bytes((other.folder_of(other.shards[1]) / file.name).read_bytes())
    with pytest.raises(MismatchError, match=r"shard-00001: this shard is of other work"):
        one.gather()


@pytest.mark.parametrize("damage", ["cut", "gone", "changed"])
def test_damaged_shards_are_refused(tmp_path: Path, damage: str) -> None:
    plan = plan_of(tmp_path)
    done = done_by_workers(plan, lambda: counted, Workers(), "count", "items")
    file = done[2].folder / "numbers.txt"
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] if damage == "cut" else file.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"numbers.txt: (it has changed|the file is missing).*; remove"):
        plan.gather()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9}'])
def test_a_receipt_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    plan = plan_of(tmp_path)
    done = done_by_workers(plan, lambda: counted, Workers(), "count", "items")
    (done[0].folder / "shard.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError):
        plan.gather()


def test_a_plan_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps([1]), encoding="utf-8")
    with pytest.raises(DataError, match="expected the plan"):
        plan_of(tmp_path).begin()


def test_options_that_cannot_work_are_refused() -> None:
    for wrong in ({"count": 0}, {"shard": 0}, {"cpus": 0}, {"gpus": -1}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))} must be at least"):
            WorkerOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no effect without ray"):
        workers_of(None, WorkerOptions(count=2))
    for address in ("somewhere", "ray://host:1", "host:", ":1", "host:port"):
        with pytest.raises(ConfigError, match="expected the address of a Ray cluster"):
            workers_of(address, WorkerOptions())
    assert workers_of(None, WorkerOptions()) is None
    assert workers_of("10.0.0.1:6379", WorkerOptions()) == Workers("10.0.0.1:6379", WorkerOptions())
