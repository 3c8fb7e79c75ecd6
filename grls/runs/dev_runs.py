"""Runs for development queries, on which weights are tuned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grls.data.dataset import gold_passages, passage_queries, read_split
from grls.errors import ConfigError, MismatchError, Option
from grls.io.progress import counted
from grls.runs.comparable import QuerySet, complete_runs, find_asked, load_runs
from grls.runs.run import Run, first_ids


@dataclass(frozen=True)
class DevRuns:
    """Runs of every member for the same queries, with the gold passages of these."""

    runs: list[Run]
    gold: dict[str, list[str]]
    split: str
    passages: int | None = None

    @classmethod
    def load(
        cls, paths: Sequence[str], members: Sequence[Run], query_set: QuerySet | None, split: str | None
    ) -> DevRuns:
        """Read runs for development queries, with their gold.

        ``paths`` has one for each of ``members``. ``split``: None takes that of their manifests, or else
        dev.
        """
        if query_set is None:
            raise ConfigError(
                f"runs to tune on need the gold passages of a data set: give {Option('data', 'DIR')}, too."
            )
        if len(paths) != len(members):
            raise ConfigError(
                f"{counted(len(paths), 'run')} to tune on for {counted(len(members), 'member')}; give one "
                "for each, in order."
            )
        runs = load_runs(paths)
        for member, run in zip(members, runs, strict=True):
            if member.steps != run.steps or (
                member.info is not None
                and run.info is not None
                and (member.info.system, member.info.stages) != (run.info.system, run.info.stages)
            ):
                raise MismatchError(
                    f"{run.path} ({_described(run)}) is to tune the weight of {member.path} "
                    f"({_described(member)}); tune on runs of the same systems, in the same order."
                )
        stated = any(run.info is not None for run in runs)
        dev = find_asked(runs, query_set.data, split if split is not None or stated else "dev")
        if dev is None or dev.split is None or dev.queries is None:
            raise ConfigError("the runs to tune on answer all queries; take runs for one split, such as dev.")
        _, qrels = read_split(query_set.data, dev.split, query_set.corpus)
        gold = {query.id: gold_passages(query, qrels) for query in dev.queries}
        own = passage_queries(dev.queries, qrels, query_set.corpus)
        runs = [run.without_own(own) for run in runs]
        return cls(complete_runs(runs, list(gold), "refuse"), gold, dev.split, len(query_set.corpus))

    def refuse_shared_queries(self, run: Run) -> None:
        shared = self.gold.keys() & run.rankings.keys()
        if shared:
            raise ConfigError(
                f"{first_ids(shared)} ({len(shared)} in all) are queries of the runs to tune on and of what "
                "is given, too; tune on other queries than those reported."
            )


def _described(run: Run) -> str:
    return ", ".join([run.info.system, *run.info.stages, run.steps] if run.info is not None else [run.steps])
